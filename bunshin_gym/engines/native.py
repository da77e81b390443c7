"""The native engine: workspaces in namespaces, forked by libbunshin. Needs no root.

It owns what lies on disk: a state directory with a skeleton, and layers. A workspace writes into one upper layer; a
snapshot seals that layer, and the workspace goes on as a fork with a fresh one above it. Layers are counted, and removed
when neither a workspace nor a snapshot uses them.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Literal

from bunshin_gym._native import Context, NativeFailure, SnapshotHandle, WorkspaceHandle, encode_records, features
from bunshin_gym._native import handles as _codes
from bunshin_gym.engines.native_layers import Layer, LayerPool, Merge
from bunshin_gym.errors import EngineUnavailable, ForkError, ImageError, UnsupportedResource, WorkspaceError, WorkspaceLost
from bunshin_gym.errors import WorkspaceBusy
from bunshin_gym.image import Image, MountPoint, state_parent
from bunshin_gym.tools.call import ExitReason, ToolCall, ToolResult, lost
from bunshin_gym.workspace import ForkReport, MemoryUsage, ProcessInfo, WorkspaceSpec, parse_size

__all__ = ["NativeEngine", "NativeSnapshot", "NativeWorkspace"]

SEAL_TIMEOUT = 30.0
_PREFIX = "bunshin-state-"
_REASONS = [
    ExitReason.EXITED, ExitReason.SIGNALED, ExitReason.TIMEOUT, ExitReason.SHELL_EXITED, ExitReason.OUT_OF_MEMORY,
    ExitReason.WORKSPACE_LOST,
]  # fmt: skip

# Docker's default set: what set-up commands such as apt-get expect of root.
_CONTAINER_CAPABILITIES = sum(1 << number for number in (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31))

_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "USER": "root",
    "LOGNAME": "root",
    "SHELL": "/bin/bash",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    # A pager or an editor that waits for a person would wait for ever.
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "EDITOR": "true",
    "VISUAL": "true",
    "GIT_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
}


def _public(failure: NativeFailure) -> WorkspaceError:
    """The public exception for a failure of the library."""
    kind: type[WorkspaceError] = {
        _codes.FORK: ForkError,
        _codes.LOST: WorkspaceLost,
        _codes.BUSY: WorkspaceBusy,
    }.get(failure.code, WorkspaceError)
    if failure.code == _codes.UNSUPPORTED:
        text = failure.message
        comm = text.partition("(")[2].partition(")")[0]
        fd = failure.fd if failure.fd >= 0 else None
        return UnsupportedResource(text, pid=failure.pid, comm=comm, fd=fd, reason=text.rpartition(", ")[2])
    return kind(failure.message, errno=failure.errno or None)


class NativeEngine:
    """Makes native workspaces. One a process; starts its keeper with the first workspace."""

    name = "native"

    def __init__(self) -> None:
        try:
            self._features = features()
        except OSError as error:
            raise EngineUnavailable(str(error)) from error
        self._lock = threading.Lock()
        self._context: Context | None = None
        self._owner = 0
        self._state = Path()

    def features(self) -> dict[str, Any]:
        """What this machine can do. Values are strings, as `bunshin doctor` shows them."""
        from bunshin_gym.engines.native_features import describe

        return describe(self._features)

    # -- the keeper

    def context(self) -> Context:
        """The keeper of this process; a forked copy of a process gets one of its own."""
        with self._lock:
            if self._context is None or self._owner != os.getpid():
                parent = state_parent()
                _remove_stale(parent)
                self._state = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
                self._state.chmod(0o755)
                for name in ("layers", "root"):
                    (self._state / name).mkdir()
                try:
                    self._context = Context(str(self._state))
                except NativeFailure as failure:
                    shutil.rmtree(self._state, ignore_errors=True)
                    raise EngineUnavailable(f"cannot run workspaces here: {failure.message}") from failure
                self._layers = LayerPool(self._context, self._state / "layers")
                self._owner = os.getpid()
                atexit.register(self.shutdown)
            return self._context

    def shutdown(self) -> None:
        """End every workspace of this process. Runs by itself at exit."""
        with self._lock:
            context, self._context = self._context, None
        if context is not None and self._owner == os.getpid():
            self._layers.close()
            context.close()

    # -- workspaces

    def create(self, spec: WorkspaceSpec, building: bool = False) -> NativeWorkspace:
        context = self.context()
        image = spec.image if spec.image is not None else Image.host()
        try:
            mounts = image.mounts(self._state)
            if building:
                mounts = tuple(point.for_building() for point in mounts)
        except OSError as error:
            raise ImageError(f"cannot prepare {image}: {error}") from error
        upper = self.new_layer(mounts)
        try:
            handle = context.create(self.plan(spec, image, mounts, upper, ()))
        except NativeFailure as failure:
            upper.drop()
            raise _public(failure) from failure
        return NativeWorkspace(self, spec, image, mounts, handle, upper, ())

    def new_layer(self, mounts: Sequence[MountPoint], work: bool = True) -> Layer:
        keys = tuple(point.key for point in mounts if point.writable)
        return self._layers.make(keys) if work else Layer(self.context(), self._layers.new_path(), keys, work)

    def plan(
        self, spec: WorkspaceSpec, image: Image, mounts: Sequence[MountPoint], upper: Layer, sealed: Sequence[Layer],
        sysfs: bool = True,
    ) -> bytes:  # fmt: skip
        """The records from which pid 1 of a workspace sets itself up; native/src/init/settings.c does them in order."""
        root = str(self._state / "root")
        records: list[Sequence[str]] = [("unshare", spec.network)]
        for point in mounts:
            target = root + point.path.rstrip("/")
            if point.writable:
                parts = [part for layer in sealed if (part := layer.part(point.key))]
                for part in (str(upper.path / point.key), *parts):
                    records.append(("layer", part, point.path.rstrip("/") + "/"))
                upper_part = str(upper.path / point.key)
                records.append(("overlay", target, upper_part, f"{upper_part}.work", *parts, *point.lowers))
            elif len(point.lowers) > 1:
                records.append(("overlay", target, "", "", *point.lowers))
            else:
                records.append(("bind", point.lowers[0], target, "rec,ro,nosuid,nodev"))
        records += [
            ("upper", str(upper.path)),
            ("devices", f"{root}/dev"),
            ("proc", f"{root}/proc"),
        ]
        for name in ("sys", "irq", "bus", "fs"):
            records.append(("bind", f"{root}/proc/{name}", f"{root}/proc/{name}", "ro,nosuid,nodev,noexec"))
        for name in ("kcore", "keys", "sysrq-trigger", "timer_list", "latency_stats", "acpi", "scsi"):
            records.append(("mask", f"{root}/proc/{name}"))
        if sysfs:
            records += [("sysfs", f"{root}/sys"), ("mask", f"{root}/sys/firmware"), ("mask", f"{root}/sys/kernel")]
        if spec.network == "host" and os.path.exists("/etc/resolv.conf"):
            records.append(("copy", "/etc/resolv.conf", f"{root}/etc/resolv.conf"))
        records += [
            ("mkdir", f"{root}/run"),
            ("mkdir", f"{root}/run/bunshin"),
            # Not writable to anyone but pid 1, who may do anything: `rm -rf /run` must not cut off the sessions.
            ("tmpfs", f"{root}/run/bunshin", "mode=511,size=64m"),
            ("pivot", root),
            ("hostname", spec.hostname),
            ("loopback",),
        ]
        cwd = spec.cwd if spec.image is None or image.cwd == spec.cwd or spec.cwd != "/work" else image.cwd
        records += [("mkdir", cwd), ("cwd", cwd)]
        environment = {**_ENVIRONMENT, "PWD": cwd, "BUNSHIN": "1", **spec.env}
        records += [("env", f"{name}={value}") for name, value in environment.items()]
        records.append(("capabilities", f"{_CONTAINER_CAPABILITIES if spec.capabilities == 'container' else 0:x}"))
        records += self._limits(spec)
        return encode_records(records)

    def _limits(self, spec: WorkspaceSpec) -> list[Sequence[str]]:
        from bunshin_gym.engines.native_features import cgroup_support

        records: list[Sequence[str]] = []
        memory, disk = parse_size(spec.memory_limit), parse_size(spec.disk_limit)
        if memory is not None:
            here = cgroup_support("memory") != "none"
            records.append(("cgroup-memory" if here else "memory-poll", str(memory)))
        if spec.pids_limit is not None:
            if cgroup_support("pids") != "none":
                # One more for the workspace's own pid 1.
                records.append(("cgroup-pids", str(spec.pids_limit + 1)))
            else:
                records += [("rlimit", "6", str(spec.pids_limit + 1)), ("pids-poll", str(spec.pids_limit))]
        if disk is not None:
            records += [("disk-limit", str(disk)), ("rlimit", "1", str(disk))]
        return records

    # -- images

    def build_layer(
        self, base: Image, commands: Sequence[str], network: Literal["none", "host"], timeout: float, target: Path
    ) -> None:
        """Run commands in a workspace on `base` and move its upper layer to `target`."""
        spec = WorkspaceSpec(image=base, network=network, capabilities="container", pids_limit=None, cwd=base.cwd)
        workspace = self.create(spec, building=True)
        try:
            for command in commands:
                result = workspace.call(ToolCall("exec", {"argv": ["bash", "-c", command]}), timeout)
                if result.exit_reason is not ExitReason.EXITED or result.exit_code != 0:
                    raise ImageError(
                        f"cannot build an image: `{command[:200]}` ended with {result.exit_reason.value} "
                        f"{result.exit_code}: {result.output[-2000:]}"
                    )
            upper = workspace.upper.hold()
        finally:
            workspace.close()
        making = target.with_suffix(".making")
        shutil.rmtree(making, ignore_errors=True)
        try:
            making.mkdir()
            for point in workspace.mounts:
                if point.writable:
                    shutil.move(upper.path / point.key, making / point.key)
            making.rename(target)
        finally:
            upper.drop()


class NativeWorkspace:
    """A live workspace: a handle on its pid 1, its upper layer, and the sealed layers below."""

    def __init__(
        self, engine: NativeEngine, spec: WorkspaceSpec, image: Image, mounts: tuple[MountPoint, ...],
        handle: WorkspaceHandle, upper: Layer, sealed: tuple[Layer, ...],
    ) -> None:  # fmt: skip
        self.engine, self.spec, self.image, self.mounts = engine, spec, image, mounts
        self.upper, self.sealed = upper, sealed
        self._handle = handle
        self._closed = False
        self._session = "shell"
        self._merge: Merge | None = None

    @property
    def alive(self) -> bool:
        return not self._closed and self._handle.alive

    def call(self, call: ToolCall, timeout: float) -> ToolResult:
        if call.name in ("read_file", "write_file"):
            return self._file_call(call)
        self._session = call.name
        try:
            outcome = self._handle.call(self._records(call), timeout)
        except NativeFailure as failure:
            if failure.code in (_codes.LOST, _codes.TIMEOUT):
                return lost("the workspace is lost: its first process is gone")
            raise _public(failure) from failure
        return _result(outcome)

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
                from bunshin_gym.tools.call import clip

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
            return _result(self._handle.output(call_id))
        except NativeFailure as failure:
            raise _public(failure) from failure

    def interrupt(self) -> None:
        try:
            self._handle.interrupt(self._session)
        except NativeFailure as failure:
            if failure.code != _codes.LOST:
                raise _public(failure) from failure

    # -- files

    def _open(self, path: str, flags: int, mode: int) -> int:
        try:
            return self._handle.open(os.fsencode(path), flags, mode)
        except NativeFailure as failure:
            raise _public(failure) from failure

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

    # -- forks

    def snapshot(self) -> NativeSnapshot:
        """Seal, and go on as a fork of the seal. Where anything fails, the frozen tree runs on as it was."""
        try:
            handle = self._handle.seal(SEAL_TIMEOUT)
        except NativeFailure as failure:
            raise _public(failure) from failure
        sealed = self._merge.take(self.sealed) if self._merge else self.sealed
        layers = (self.upper.hold(), *(layer.hold() for layer in sealed))
        snapshot = NativeSnapshot(self, handle, layers)
        try:
            child = snapshot.rebuild()
        except BaseException:
            self._handle.release()
            snapshot.close()
            raise
        self._become(child)
        if self._merge is None or self._merge.done:
            if self._merge:
                self._merge.close()
            self._merge = Merge.start(self.engine, self.mounts, self.sealed)
        return snapshot

    def _become(self, child: NativeWorkspace) -> None:
        """Take over what a fork of this workspace has: its tree, and the layers it stands on."""
        self._handle.replace(child._handle)
        old = (self.upper, *self.sealed)
        self.upper, self.sealed = child.upper, child.sealed
        for layer in old:
            layer.drop()

    def restore(self, snapshot: NativeSnapshot) -> None:
        self._become(snapshot.rebuild())

    # -- looking

    def _processes(self, with_memory: bool) -> list[list[str]]:
        try:
            return [line.split(" ", 7) for line in self._handle.processes(with_memory).splitlines()]
        except NativeFailure as failure:
            raise _public(failure) from failure

    def memory(self) -> MemoryUsage:
        rows = self._processes(True)
        return MemoryUsage(*(sum(int(row[column]) for row in rows if row[0] != "1") for column in (4, 5, 6)))

    def processes(self) -> list[ProcessInfo]:
        return [ProcessInfo(int(row[0]), int(row[1]), row[7], int(row[2])) for row in self._processes(False)]

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._handle.close()
        if self._merge:
            self._merge.close()
        for layer in (self.upper, *self.sealed):
            layer.drop()


class NativeSnapshot:
    """A sealed tree: its image and page stores, and the layers its files lie in."""

    def __init__(self, source: NativeWorkspace, handle: SnapshotHandle, layers: tuple[Layer, ...]) -> None:
        self.engine, self.spec, self.image, self.mounts = source.engine, source.spec, source.image, source.mounts
        self._handle = handle
        self._layers = layers
        self._size = handle.size
        self._report = _report(handle.report)

    @property
    def size(self) -> int:
        return self._size

    @property
    def report(self) -> ForkReport:
        return self._report

    def _plan(self, upper: Layer) -> bytes:
        return self.engine.plan(self.spec, self.image, self.mounts, upper, self._layers)

    def _child(self, handle: WorkspaceHandle, upper: Layer) -> NativeWorkspace:
        layers = tuple(layer.hold() for layer in self._layers)
        return NativeWorkspace(self.engine, self.spec, self.image, self.mounts, handle, upper, layers)

    def rebuild(self) -> NativeWorkspace:
        """One fork, for a workspace that goes on as it. Raises ForkError."""
        (child,) = self.fork(1)
        if isinstance(child, WorkspaceError):
            raise child if isinstance(child, ForkError) else ForkError(str(child), errno=child.errno)
        return child

    def fork(self, n: int) -> list[NativeWorkspace | WorkspaceError]:
        uppers = [self.engine.new_layer(self.mounts) for _ in range(n)]
        try:
            outcomes = self._handle.fork_many([self._plan(upper) for upper in uppers])
        except NativeFailure as failure:
            for upper in uppers:
                upper.drop()
            raise _public(failure) from failure
        children: list[NativeWorkspace | WorkspaceError] = []
        for outcome, upper in zip(outcomes, uppers, strict=True):
            if isinstance(outcome, NativeFailure):
                upper.drop()
                error = _public(outcome)
                children.append(error if isinstance(error, ForkError) else ForkError(str(error), errno=error.errno))
            else:
                children.append(self._child(outcome, upper))
        return children

    def close(self) -> None:
        self._handle.close()
        for layer in self._layers:
            layer.drop()


def _result(outcome: _codes.CallOutcome) -> ToolResult:
    return ToolResult(
        output=outcome.output.decode(errors="replace"),
        stdout=outcome.stdout,
        stderr=outcome.stderr,
        exit_code=outcome.exit_code,
        exit_reason=_REASONS[outcome.reason],
        truncated=outcome.truncated,
        duration=outcome.duration,
        stdout_total=outcome.stdout_total,
        stderr_total=outcome.stderr_total,
        notice=outcome.notice,
        call_id=outcome.call,
    )


def _report(text: str) -> ForkReport:
    stages: dict[str, float] = {}
    counts: dict[str, int] = {}
    skipped = []
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == "skipped":
            skipped.append(value)
        elif name.startswith("bytes-") or name in ("processes", "threads"):
            counts[name] = int(value)
        else:
            stages[name] = float(value)
    return ForkReport(
        stages, counts.get("bytes-shared", 0), counts.get("bytes-copied", 0), tuple(skipped),
        counts.get("processes", 0), counts.get("threads", 0),
    )  # fmt: skip


def _remove_stale(parent: Path) -> None:
    """Remove what a keeper that was itself killed left behind: state directories of ours that nobody has locked."""
    for path in parent.glob(f"{_PREFIX}*"):
        try:
            if path.stat().st_uid != os.geteuid():
                continue
            with open(path / "lock") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        except OSError:
            continue  # in use, or just being made
