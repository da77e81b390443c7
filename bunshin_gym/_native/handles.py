"""The library's objects as Python classes: each owns one handle and frees it once. Errors become NativeFailure."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char_p, c_int32, c_size_t, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cache

from bunshin_gym._native import library as _library
from bunshin_gym._native.library import ContextOptions, Result

__all__ = ["CallOutcome", "Context", "NativeFailure", "SnapshotHandle", "WorkspaceHandle", "features", "load"]

_DESCRIPTORS = 250  # more than a snapshot has of them
OS, UNSUPPORTED, FORK, LOST, BUSY, INVALID, TIMEOUT, OWNER = range(1, 9)


class NativeFailure(Exception):
    """An error of the library. `code` is one of the constants above; engines turn it into a public exception."""

    def __init__(self, code: int, errno: int, pid: int, fd: int, message: str) -> None:
        super().__init__(message)
        self.code, self.errno, self.pid, self.fd, self.message = code, errno, pid, fd, message


@dataclass(frozen=True)
class CallOutcome:
    """What a call gave, copied out of the library."""

    exit_code: int
    reason: int
    truncated: bool
    call: int
    duration: float
    stdout_total: int
    stderr_total: int
    output: bytes
    stdout: bytes
    stderr: bytes
    notice: str


@cache
def _lib() -> ctypes.CDLL:
    return _library.load()


def load() -> None:
    """Load the library. Raises OSError where it is missing or of another version."""
    _lib()


def _failure(error: int) -> NativeFailure:
    lib = _lib()
    failure = NativeFailure(
        lib.bunshin_error_code(error),
        lib.bunshin_error_errno(error),
        lib.bunshin_error_pid(error),
        lib.bunshin_error_fd(error),
        lib.bunshin_error_message(error).decode(errors="replace"),
    )
    lib.bunshin_error_destroy(error)
    return failure


def _check(error: int | None) -> None:
    if error:
        raise _failure(error)


def _text(pointer: c_void_p) -> str:
    try:
        return ctypes.string_at(pointer).decode(errors="replace") if pointer else ""
    finally:
        _lib().bunshin_text_destroy(pointer)


def _outcome(pointer: ctypes._Pointer[Result]) -> CallOutcome:
    result = pointer.contents
    try:
        return CallOutcome(
            exit_code=result.exit_code,
            reason=result.reason,
            truncated=bool(result.truncated),
            call=result.call,
            duration=result.duration,
            stdout_total=result.stdout_total,
            stderr_total=result.stderr_total,
            output=ctypes.string_at(result.output, result.output_size),
            stdout=ctypes.string_at(result.stdout_data, result.stdout_size),
            stderr=ctypes.string_at(result.stderr_data, result.stderr_size),
            notice=(result.notice or b"").decode(errors="replace"),
        )
    finally:
        _lib().bunshin_result_destroy(pointer)


class _Handle:
    """A pointer that is freed once. Users of it hold it back: freeing waits until the last of them has left."""

    _free = ""

    def __init__(self, pointer: int) -> None:
        self._pointer: int | None = pointer
        self._users = 0
        self._idle = threading.Condition()

    def __enter__(self) -> int:
        with self._idle:
            if self._pointer is None:
                raise NativeFailure(LOST, 0, -1, -1, "the workspace is closed")
            self._users += 1
            return self._pointer

    def __exit__(self, *_: object) -> None:
        with self._idle:
            self._users -= 1
            self._idle.notify_all()

    def take(self) -> int | None:
        """The pointer, for a call that consumes it; the handle is empty afterwards."""
        with self._idle:
            pointer, self._pointer = self._pointer, None
            while self._users and not self._idle.wait(timeout=30):
                pass
            return pointer

    def close(self) -> None:
        if pointer := self.take():
            getattr(_lib(), self._free)(pointer)


class WorkspaceHandle(_Handle):
    _free = "bunshin_workspace_destroy"

    def close(self) -> None:
        """End the workspace first: a call in another thread then returns, and lets go of the handle."""
        with contextlib.suppress(NativeFailure), self as pointer:
            _lib().bunshin_workspace_end(pointer)
        super().close()

    @property
    def alive(self) -> bool:
        try:
            with self as pointer:
                return bool(_lib().bunshin_workspace_alive(pointer))
        except NativeFailure:
            return False

    def call(self, blob: bytes, timeout: float) -> CallOutcome:
        result = POINTER(Result)()
        with self as pointer:
            _check(_lib().bunshin_workspace_call(pointer, blob, len(blob), timeout, byref(result)))
        return _outcome(result)

    def output(self, call: int) -> CallOutcome:
        result = POINTER(Result)()
        with self as pointer:
            _check(_lib().bunshin_workspace_output(pointer, call, byref(result)))
        return _outcome(result)

    def interrupt(self, session: str) -> None:
        with self as pointer:
            _check(_lib().bunshin_workspace_interrupt(pointer, session.encode()))

    def open(self, path: bytes, flags: int, mode: int) -> int:
        """A descriptor of a regular file inside; the caller closes it."""
        fd = c_int32()
        with self as pointer:
            _check(_lib().bunshin_workspace_open(pointer, path, flags, mode, byref(fd)))
        return fd.value

    def processes(self, with_memory: bool) -> str:
        text = c_void_p()
        with self as pointer:
            _check(_lib().bunshin_workspace_processes(pointer, int(with_memory), byref(text)))
        return _text(text)

    def holding(self) -> tuple[int, float]:
        """Bytes its processes hold for themselves alone, and the seconds of processor time they have had. Cheap."""
        size, cpu = c_uint64(), c_uint64()
        with self as pointer:
            _check(_lib().bunshin_workspace_holding(pointer, byref(size), byref(cpu)))
        return size.value, cpu.value / 1e9

    def digest(self, request: bytes) -> str:
        text = c_void_p()
        with self as pointer:
            _check(_lib().bunshin_workspace_digest(pointer, request, len(request), byref(text)))
        return _text(text)

    def freeze(self) -> None:
        with self as pointer:
            _check(_lib().bunshin_workspace_freeze(pointer))

    def background(self, on: bool) -> None:
        with self as pointer:
            _check(_lib().bunshin_workspace_background(pointer, int(on)))

    def seal(self, timeout: float, merged: int = 0) -> SnapshotHandle:
        """`merged`: by bits, the workspace's stores whose pages are copied into the new one."""
        snapshot = c_void_p()
        with self as pointer:
            _check(_lib().bunshin_workspace_seal(pointer, timeout, merged, byref(snapshot)))
        assert snapshot.value
        return SnapshotHandle(snapshot.value)

    def release(self) -> None:
        with self as pointer:
            _check(_lib().bunshin_workspace_release(pointer))

    def replace(self, fork: WorkspaceHandle) -> None:
        other = fork.take()
        with self as pointer:
            _lib().bunshin_workspace_replace(pointer, other)

    @property
    def report(self) -> str:
        with self as pointer:
            return str((_lib().bunshin_workspace_report(pointer) or b"").decode())


class SnapshotHandle(_Handle):
    _free = "bunshin_snapshot_destroy"

    def fork(self, plan: bytes) -> WorkspaceHandle:
        workspace = c_void_p()
        with self as pointer:
            _check(_lib().bunshin_snapshot_fork(pointer, plan, len(plan), byref(workspace)))
        assert workspace.value
        return WorkspaceHandle(workspace.value)

    def resume(self, plan: bytes) -> WorkspaceHandle:
        """A fork for the workspace that was sealed: it alone keeps connections to the outside. Once."""
        workspace = c_void_p()
        with self as pointer:
            _check(_lib().bunshin_snapshot_resume(pointer, plan, len(plan), byref(workspace)))
        assert workspace.value
        return WorkspaceHandle(workspace.value)

    def fork_many(self, plans: Sequence[bytes]) -> list[WorkspaceHandle | NativeFailure]:
        n = len(plans)
        forks, errors = (c_void_p * n)(), (c_void_p * n)()
        blobs, sizes = (c_char_p * n)(*plans), (c_size_t * n)(*(len(plan) for plan in plans))
        with self as pointer:
            _check(_lib().bunshin_snapshot_fork_many(pointer, blobs, sizes, n, forks, errors))
        return [
            _failure(error) if error else WorkspaceHandle(fork or 0) for fork, error in zip(forks, errors, strict=True)
        ]

    def export(self) -> list[int]:
        """Its image and its page stores, as sealed memfds; the caller closes them."""
        fds, count = (c_int32 * _DESCRIPTORS)(), c_size_t()
        with self as pointer:
            _check(_lib().bunshin_snapshot_export(pointer, fds, _DESCRIPTORS, byref(count)))
        return list(fds[: count.value])

    @property
    def size(self) -> int:
        with self as pointer:
            return int(_lib().bunshin_snapshot_size(pointer))

    def holding(self) -> list[tuple[int, int]]:
        """Identity and bytes of each memory file behind it, the image first."""
        text = c_void_p()
        with self as pointer:
            _check(_lib().bunshin_snapshot_holding(pointer, byref(text)))
        rows = [line.split() for line in _text(text).splitlines()]
        return [(int(identity), int(size)) for identity, size in rows]

    def spill(self, directory: str, which: int) -> None:
        """Move memory files, by the bits of `which`, to a disk. They must be nobody else's. Until `recall` no forks."""
        with self as pointer:
            _check(_lib().bunshin_snapshot_spill(pointer, directory.encode(), which))

    def recall(self) -> None:
        with self as pointer:
            _check(_lib().bunshin_snapshot_recall(pointer))

    @property
    def report(self) -> str:
        with self as pointer:
            return str((_lib().bunshin_snapshot_report(pointer) or b"").decode())


class Context(_Handle):
    _free = "bunshin_context_destroy"

    def __init__(self, state_path: str) -> None:
        options = ContextOptions(ctypes.sizeof(ContextOptions), _library.init_path().encode(), state_path.encode())
        context = c_void_p()
        _check(_lib().bunshin_context_create(byref(options), byref(context)))
        assert context.value
        super().__init__(context.value)

    def create(self, plan: bytes) -> WorkspaceHandle:
        workspace = c_void_p()
        with self as pointer:
            _check(_lib().bunshin_workspace_create(pointer, plan, len(plan), byref(workspace)))
        assert workspace.value
        return WorkspaceHandle(workspace.value)

    def remove(self, path: str) -> None:
        with self as pointer:
            _check(_lib().bunshin_context_remove(pointer, path.encode()))

    def merge(self, blob: bytes, *, apart: bool = False) -> None:
        with self as pointer:
            _check(_lib().bunshin_context_merge(pointer, blob, len(blob), int(apart)))

    def snapshot_of(self, fds: Sequence[int], size: int, report: str) -> SnapshotHandle:
        """A snapshot of memfds that hold what those of `SnapshotHandle.export` held; the caller closes them."""
        snapshot = c_void_p()
        array = (c_int32 * len(fds))(*fds)
        with self as pointer:
            _check(_lib().bunshin_snapshot_import(pointer, array, len(fds), size, report.encode(), byref(snapshot)))
        assert snapshot.value
        return SnapshotHandle(snapshot.value)

    def flush(self) -> None:
        with self as pointer:
            _check(_lib().bunshin_context_flush(pointer))


def features() -> dict[str, str]:
    """What the library found out about this machine, name to value."""
    text = c_void_p()
    _check(_lib().bunshin_features(byref(text)))
    return dict(line.split(" ", 1) for line in _text(text).splitlines())
