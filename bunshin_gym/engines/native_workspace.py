"""A live workspace of the native engine, and its snapshots."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from bunshin_gym._native import NativeFailure, SnapshotHandle, WorkspaceHandle, encode_records
from bunshin_gym.engines import native_digest, native_saved
from bunshin_gym.engines.native_layers import Layer, Merge
from bunshin_gym.engines.native_results import codes, public_error, public_report, public_result
from bunshin_gym.engines.native_stores import Stores
from bunshin_gym.errors import ForkError, WorkspaceError, WorkspaceLost
from bunshin_gym.image import MountPoint
from bunshin_gym.state import StateDigest
from bunshin_gym.tools.call import ToolCall, ToolResult, clip, lost
from bunshin_gym.workspace import ForkReport, Holding, MemoryUsage, ProcessInfo, WorkspaceSpec

if TYPE_CHECKING:
    from bunshin_gym.engines.native import NativeEngine
    from bunshin_gym.engines.native_saved import SavedSource

__all__ = ["NativeSnapshot", "NativeWorkspace"]

SEAL_TIMEOUT = 30.0

_log = logging.getLogger("bunshin_gym")


class NativeWorkspace:
    """A live workspace: a handle on its pid 1, its upper layer, and the sealed layers below."""

    def __init__(
        self, engine: NativeEngine, spec: WorkspaceSpec, mounts: tuple[MountPoint, ...],
        handle: WorkspaceHandle, upper: Layer, sealed: tuple[Layer, ...], stores: Stores = (),
    ) -> None:  # fmt: skip
        self.engine, self.spec, self.mounts = engine, spec, mounts
        self.upper, self.sealed = upper, sealed
        self.stores = engine.stores.hold(stores)
        self._handle = handle
        self._closed = False
        self._session = "shell"
        self._merge: Merge | None = None
        self._sums: dict[str, tuple[str, str]] = {}  # of all files, as of the last digest; empty once they may differ

    @property
    def alive(self) -> bool:
        return not self._closed and self._handle.alive

    @property
    def report(self) -> ForkReport:
        return public_report(self._handle.report)

    def call(self, call: ToolCall, timeout: float) -> ToolResult:
        if call.name in ("read_file", "write_file"):
            return self._file_call(call)
        self._session = call.name
        self._sums = {}
        try:
            outcome = self._handle.call(self._records(call), timeout)
        except NativeFailure as failure:
            if failure.code in (codes.LOST, codes.TIMEOUT):
                return lost("the workspace is lost: its first process is gone")
            raise public_error(failure) from failure
        return public_result(outcome)

    def _records(self, call: ToolCall) -> bytes:
        records: list[Sequence[str]] = [(call.name,), ("output-limit", str(self.spec.output_limit))]
        args = call.args
        if not self.spec.separate_stderr:
            records.append(("merged",))
        if call.name == "shell":
            records.append(("text", args["command"]))
        elif call.name == "python":
            records.append(("text", args["code"]))
        else:
            argv = args["argv"] if "argv" in args else [*args.get("shell", ["/bin/sh", "-c"]), args["command"]]
            records.append(("argv", *argv))
            if args.get("cwd"):
                records.append(("cwd", args["cwd"]))
            if args.get("env"):
                records.append(("env", *(f"{name}={value}" for name, value in args["env"].items())))
            if args.get("stdin") == "open":
                records.append(("stdin-open",))
        try:
            return encode_records(records)
        except ValueError as error:
            raise WorkspaceError(str(error)) from error

    def _file_call(self, call: ToolCall) -> ToolResult:
        path = call.args["path"]
        try:
            if call.name == "read_file":
                data = self.read_file(path)
                limit = self.spec.output_limit
                kept, cut = clip(data, limit)
                return ToolResult(kept.decode(errors="replace"), stdout=data, truncated=cut, stdout_total=len(data))
            content = call.args["content"].encode("utf-8", "surrogateescape")
            self.write_file(path, content, None)
            text = f"wrote {len(content)} bytes to {path}\n"
            return ToolResult(text, stdout=text.encode(), stdout_total=len(text))
        except WorkspaceLost as error:
            return lost(str(error))
        except WorkspaceError as error:
            text = f"{error}\n"
            return ToolResult(text, stderr=text.encode(), exit_code=1, stderr_total=len(text))

    def read_output(self, call_id: int) -> ToolResult:
        try:
            return public_result(self._handle.output(call_id))
        except NativeFailure as failure:
            raise public_error(failure) from failure

    def interrupt(self) -> None:
        try:
            self._handle.interrupt(self._session)
        except NativeFailure as failure:
            if failure.code != codes.LOST:
                raise public_error(failure) from failure

    # -- files

    def _open(self, path: str, flags: int, mode: int) -> int:
        if flags & os.O_ACCMODE != os.O_RDONLY:
            self._sums = {}
        try:
            return self._handle.open(os.fsencode(path), flags, mode)
        except NativeFailure as failure:
            raise public_error(failure) from failure

    def write_file(self, path: str, data: bytes | BinaryIO, mode: int | None) -> None:
        fd = self._open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644 if mode is None else mode)
        try:
            with open(fd, "wb", buffering=0) as target:
                if mode is not None:
                    os.fchmod(fd, mode)
                if isinstance(data, (bytes, bytearray, memoryview)):
                    rest = memoryview(data)
                    while rest:
                        rest = rest[target.write(rest) or 0 :]
                else:
                    shutil.copyfileobj(data, target, 1 << 20)
        except OSError as error:
            raise WorkspaceError(f"cannot write {path}: {error.strerror}", errno=error.errno) from error

    def read_file(self, path: str) -> bytes:
        fd = self._open(path, os.O_RDONLY, 0)
        try:
            with open(fd, "rb", buffering=0) as source:
                return source.readall()
        except OSError as error:
            raise WorkspaceError(f"cannot read {path}: {error.strerror}", errno=error.errno) from error

    def freeze(self) -> None:
        self._sums = {}
        try:
            self._handle.freeze()
        except NativeFailure as failure:
            raise public_error(failure) from failure

    # -- forks

    def snapshot(self) -> NativeSnapshot:
        """Seal, and go on as a fork of the seal. Where anything fails, the frozen tree runs on as it was."""
        snapshot = self._seal()
        try:
            child = snapshot.resume()
        except BaseException:
            with contextlib.suppress(NativeFailure):  # what failed is to be told, not that the source is lost as well
                self._handle.release()
            snapshot.close()
            raise
        self._become(child)
        self.merge()
        return snapshot

    def merge(self) -> None:
        """Have its sealed layers merged in the background, where they are many and no merge is under way."""
        if self._merge is None or self._merge.done:
            if self._merge:
                self._merge.close()
            self._merge = Merge.start(self.engine, self.mounts, self.sealed)

    def _seal(self, merged: int = 0) -> NativeSnapshot:
        """Freeze the tree and capture it. It stays frozen. `merged`: stores to be done without, by bits."""
        try:
            handle = self._handle.seal(SEAL_TIMEOUT, merged)
        except NativeFailure as failure:
            raise public_error(failure) from failure
        sealed = self._merge.take(self.sealed) if self._merge else self.sealed
        self.upper.sums = dict(self._sums)
        self._sums = {}
        return NativeSnapshot(self, handle, (self.upper.hold(), *(layer.hold() for layer in sealed)))

    def park(self) -> NativeSnapshot:
        """Seal, and end. What is nobody else's goes from memory to where the layers lie, if that is a disk."""
        # Of the stores of earlier parkings, which are full of pages that were written since, one is enough.
        alone = [i for i, (store, _) in enumerate(self.stores) if self.engine.stores.holders(store) == 1]
        large = max(alone, key=lambda i: self.stores[i][1], default=0)
        snapshot = self._seal(sum(1 << i for i in alone if i != large))
        self.close()
        snapshot.spill()
        return snapshot

    def _become(self, child: NativeWorkspace) -> None:
        """Take over what a fork of this workspace has: its tree, and the layers it stands on."""
        self._handle.replace(child._handle)
        old = (self.upper, *self.sealed)
        self.upper, self.sealed = child.upper, child.sealed
        self.engine.stores.drop(self.stores)
        self.stores = child.stores
        self._sums = {}
        for layer in old:
            layer.drop()

    def restore(self, snapshot: NativeSnapshot) -> None:
        self._become(snapshot.rebuild())

    def background(self, on: bool) -> bool:
        try:
            self._handle.background(on)
        except NativeFailure as failure:
            if failure.code in (codes.UNSUPPORTED, codes.LOST):
                return False
            raise public_error(failure) from failure
        return True

    # -- looking

    def digest(self, origin: bytes) -> StateDigest:
        result, self._sums = native_digest.digest(self._handle, self.mounts, self.sealed, origin)
        return result

    def _processes(self, with_memory: bool) -> list[list[str]]:
        try:
            return [line.split(" ", 7) for line in self._handle.processes(with_memory).splitlines()]
        except NativeFailure as failure:
            raise public_error(failure) from failure

    def memory(self) -> MemoryUsage:
        rows = self._processes(True)
        return MemoryUsage(*(sum(int(row[column]) for row in rows if row[0] != "1") for column in (4, 5, 6)))

    def holding(self) -> Holding:
        try:
            own, cpu = self._handle.holding()
        except NativeFailure as failure:
            raise public_error(failure) from failure
        return Holding(own, dict(self.stores), cpu)

    def processes(self) -> list[ProcessInfo]:
        return [ProcessInfo(int(row[0]), int(row[1]), row[7], int(row[2])) for row in self._processes(False)]

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._handle.close()
        if self._merge:
            self._merge.close()
        self.engine.stores.drop(self.stores)
        for layer in (self.upper, *self.sealed):
            layer.drop()


class NativeSnapshot:
    """A sealed tree: its image and page stores, and the layers its files lie in."""

    def __init__(
        self, source: NativeWorkspace | SavedSource, handle: SnapshotHandle, layers: tuple[Layer, ...]
    ) -> None:
        self.engine, self.spec, self.mounts = source.engine, source.spec, source.mounts
        self._handle = handle
        self._layers = layers
        self._size = handle.size
        self._report = public_report(handle.report)
        self._image, self._stores = 0, Stores()
        self._moving = threading.Lock()  # for the two below, and while files move
        self._forking = 0
        self.spilled = 0
        self._look()

    @property
    def size(self) -> int:
        return self._size

    @property
    def report(self) -> ForkReport:
        return self._report

    def _plan(self, upper: Layer) -> bytes:
        return self.engine.plan(self.spec, self.mounts, upper, self._layers)

    def _child(self, handle: WorkspaceHandle, upper: Layer) -> NativeWorkspace:
        layers = tuple(layer.hold() for layer in self._layers)
        return NativeWorkspace(self.engine, self.spec, self.mounts, handle, upper, layers, self._stores)

    def rebuild(self) -> NativeWorkspace:
        """One fork, for a workspace that goes on as it. Raises ForkError."""
        (child,) = self.fork(1)
        if isinstance(child, WorkspaceError):
            raise child if isinstance(child, ForkError) else ForkError(str(child), errno=child.errno)
        return child

    def resume(self) -> NativeWorkspace:
        """One fork, for the workspace that was sealed: what it had outside, it keeps."""
        upper = self.engine.new_layer(self.mounts)
        try:
            return self._child(self._handle.resume(self._plan(upper)), upper)
        except NativeFailure as failure:
            upper.drop()
            error = public_error(failure)
            raise error if isinstance(error, ForkError) else ForkError(str(error), errno=error.errno) from failure

    # -- out of memory, and back

    def spill(self) -> int:
        """Move what is its alone to a disk; returns how many bytes. Where that cannot be done, it stays in memory."""
        with self._moving:
            if self._forking:
                return 0
            before = self._image + sum(size for _, size in self._stores)
            try:
                files = self._handle.holding()
                which = [i for i, (file, _) in enumerate(files) if i == 0 or self.engine.stores.holders(file) == 1]
                self._handle.spill(str(self.engine.disk), sum(1 << i for i in which if i < 64))
            except NativeFailure as failure:
                _log.info("a snapshot stays in memory: %s", failure.message)
            self._look()
            moved = before - self._image - sum(size for _, size in self._stores)
            self.spilled += moved
            return moved

    @contextlib.contextmanager
    def _at_hand(self) -> Iterator[None]:
        """All of it is in memory, as long as forks are made of it."""
        with self._moving:
            if self.spilled:
                try:
                    self._handle.recall()
                    self.spilled = 0
                except NativeFailure as failure:
                    raise ForkError(f"cannot recall a snapshot: {failure.message}", errno=failure.errno) from failure
                finally:
                    self._look()
            self._forking += 1
        try:
            yield
        finally:
            with self._moving:
                self._forking -= 1

    def wake(self) -> NativeWorkspace:
        """The workspace that was parked, on a layer of its own again."""
        with self._at_hand():
            child = self.resume()
        child.merge()  # each parking adds a layer
        return child

    def _look(self) -> None:
        """See what it holds in memory by now."""
        with contextlib.suppress(NativeFailure):  # it is closed
            (_, self._image), *stores = self._handle.holding()
            before, self._stores = self._stores, self.engine.stores.hold(tuple(file for file in stores if file[1]))
            self.engine.stores.drop(before)

    def holding(self) -> Holding:
        return Holding(self._image, dict(self._stores))

    def fork(self, n: int) -> list[NativeWorkspace | WorkspaceError]:
        with self._at_hand():
            return self._fork(n)

    def _fork(self, n: int) -> list[NativeWorkspace | WorkspaceError]:
        uppers = [self.engine.new_layer(self.mounts) for _ in range(n)]
        try:
            outcomes = self._handle.fork_many([self._plan(upper) for upper in uppers])
        except NativeFailure as failure:
            for upper in uppers:
                upper.drop()
            raise public_error(failure) from failure
        children: list[NativeWorkspace | WorkspaceError] = []
        for outcome, upper in zip(outcomes, uppers, strict=True):
            if isinstance(outcome, NativeFailure):
                upper.drop()
                error = public_error(outcome)
                children.append(error if isinstance(error, ForkError) else ForkError(str(error), errno=error.errno))
            else:
                children.append(self._child(outcome, upper))
        return children

    def save(self, directory: Path) -> None:
        with self._at_hand():
            native_saved.save(self.engine, self.spec, self.mounts, self._handle, self._layers, directory)

    def close(self) -> None:
        with self._moving:
            self._handle.close()
            self.engine.stores.drop(self._stores)
        for layer in self._layers:
            layer.drop()
