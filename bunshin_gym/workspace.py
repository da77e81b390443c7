"""Workspace and Snapshot: what every engine offers, behind one pair of handles.

A Workspace is a live container; a Snapshot is a sealed fork point. Both are thin: they check arguments, order and
ownership, and pass on to an engine's objects. Each belongs to the process that made it: in a forked copy of that
process they are dead handles, so that a child that exits does not take its parent's workspaces along.

A workspace is one session: one call at a time. `interrupt`, `read_output`, `memory`, `processes` and `close` may be
used from other threads while a call runs; anything else is refused with `WorkspaceBusy`.

A workspace that nobody uses can be *parked*: it is sealed and its processes end, and whatever is asked of it next wakes
it. Nothing shows but the time that takes; inside, time has stood still. Who comes while it is being parked waits.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Self

from bunshin_gym import engines, tools
from bunshin_gym.errors import SnapshotClosed, WorkspaceBusy, WorkspaceError
from bunshin_gym.frozen import check_seed, frozen_instant
from bunshin_gym.tools import ToolCall, ToolResult
from bunshin_gym.usage import ForkReport, Holding, MemoryUsage, ProcessInfo

if TYPE_CHECKING:
    from bunshin_gym.engines.base import EngineSnapshot, EngineWorkspace
    from bunshin_gym.image import Image
    from bunshin_gym.state import StateDigest

__all__ = [
    "ForkReport",
    "Holding",
    "MemoryUsage",
    "ProcessInfo",
    "Snapshot",
    "Workspace",
    "WorkspaceSpec",
    "parse_size",
]

_UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_size(size: str | int | None) -> int | None:
    """Bytes of a size: 1073741824, "1G", "512M", "64 KiB". None stays None. Raises ValueError."""
    if size is None or (isinstance(size, int) and not isinstance(size, bool) and size > 0):
        return size
    text = str(size).strip().upper().replace("IB", "").removesuffix("B").strip()
    number, unit = text.rstrip("KMGT").strip(), text[-1:] if text[-1:] in "KMGT" else ""
    try:
        result = int(float(number) * _UNITS[unit])
    except (ValueError, OverflowError):
        result = 0
    if result <= 0:
        raise ValueError(f'cannot read {size!r} as a size: give a positive number of bytes, or e.g. "512M", "1G"')
    return result


@dataclass(frozen=True)
class WorkspaceSpec:
    """What a workspace is made of. Sizes are bytes or strings such as "1G"; None means no limit.

    `image` None is `Image.host()`. `call_timeout` (seconds) holds for calls that give none. `cwd` is where the shell
    starts, and where relative paths start. `separate_stderr` False sends standard error where standard output goes, in
    one exact order. `capabilities` is what root inside may do: nothing special, what Docker's root may, or everything
    in its own namespaces, mounting file systems included. `output_limit` bounds the bytes kept of each stream of a
    call: half head, half tail.

    `frozen_time` (seconds since 1970, or a datetime; one without a zone is in UTC) is where the wall clock stands for
    the programs inside, and `seed` (0 to 2**64 - 1) what their random numbers follow from; None leaves them the
    machine's. Not every program takes them: docs/frozen.md has a table.
    """

    image: Image | None = None
    engine: str = "native"
    network: Literal["none", "host"] = "none"
    memory_limit: str | int | None = None
    pids_limit: int | None = 512
    disk_limit: str | int | None = None
    call_timeout: float = 30.0
    cwd: str = "/work"
    env: Mapping[str, str] = field(default_factory=dict)
    separate_stderr: bool = True
    output_limit: int = 1 << 20
    capabilities: Literal["none", "container", "all"] = "none"
    hostname: str = "bunshin"
    frozen_time: float | datetime | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.network not in ("none", "host"):
            raise ValueError(f"network must be 'none' or 'host', not {self.network!r}")
        if self.capabilities not in ("none", "container", "all"):
            raise ValueError(f"capabilities must be 'none', 'container' or 'all', not {self.capabilities!r}")
        if not self.cwd.startswith("/"):
            raise ValueError(f"cwd must be an absolute path, not {self.cwd!r}")
        if self.pids_limit is not None and self.pids_limit < 1:
            raise ValueError(f"pids_limit must be at least 1, not {self.pids_limit}")
        if self.output_limit < 2:
            raise ValueError(f"output_limit must be at least 2 bytes, not {self.output_limit}")
        _check_timeout(self.call_timeout)
        parse_size(self.memory_limit)
        parse_size(self.disk_limit)
        frozen_instant(self.frozen_time)
        object.__setattr__(self, "seed", check_seed(self.seed))  # a plain int, whatever integer it was


class Workspace:
    """A live container. Making one starts it; closing it (or leaving a `with`) leaves nothing behind.

    Raises EngineUnavailable, ImageError or WorkspaceError where it cannot start.
    """

    def __init__(self, spec: WorkspaceSpec | None = None, **overrides: Any) -> None:
        spec = spec if spec is not None else WorkspaceSpec()
        spec = replace(spec, **overrides) if overrides else spec
        self._start(spec, engines.get(spec.engine).create(spec))

    @classmethod
    def _around(cls, spec: WorkspaceSpec, inner: EngineWorkspace) -> Workspace:
        """The handle of a workspace an engine has made by forking."""
        self = cls.__new__(cls)
        self._start(spec, inner)
        return self

    def _start(self, spec: WorkspaceSpec, inner: EngineWorkspace) -> None:
        self.spec = spec
        self._inner = inner
        self._owner = os.getpid()
        self._lock = threading.Condition()
        self._running: tuple[str, float] | None = None
        self._lookers = 0
        self._parking = False
        self._parked: Snapshot | None = None
        self._waking = threading.Lock()
        self._closed = False

    # -- calls

    def run(self, command: str, timeout: float | None = None) -> ToolResult:
        """Run a command in the workspace's shell. `timeout` in seconds; the spec's `call_timeout` unless given."""
        return self.call(ToolCall("shell", {"command": command}), timeout)

    def call(self, call: ToolCall, timeout: float | None = None) -> ToolResult:
        """Run a tool call to its end. A timeout and the loss of the workspace are results, not exceptions.

        Raises InvalidToolCall, WorkspaceBusy, and WorkspaceError on a closed workspace.
        """
        tools.validate(call)
        timeout = self.spec.call_timeout if timeout is None else timeout
        _check_timeout(timeout)
        with self._alone(str(call)):
            return self._inner.call(tools.lowered(call), timeout)

    def read_output(self, call_id: int) -> ToolResult:
        """What background jobs of an earlier call have written since it returned (or since this was last asked)."""
        with self._looking("read output") as inner:
            return inner.read_output(call_id)

    def interrupt(self) -> None:
        """Interrupt the running call, as Ctrl-C would; it returns to whoever made it. Does nothing when none runs."""
        inner = self._open("interrupt")
        if not self.parked:
            inner.interrupt()

    def background(self, on: bool) -> bool:
        """Let it run only where nobody else wants the processor (`on`), or as everybody again; also while a call runs.

        False, and nothing is changed, where that cannot be done: ordinary users may not end it again (RLIMIT_NICE).
        """
        return self._open("change the priority").background(on)

    # -- files

    def write_file(self, path: str, data: bytes | BinaryIO, mode: int | None = None) -> None:
        """Write a whole file, exactly; missing directories are made. Raises WorkspaceError with its errno."""
        with self._alone(f"write_file {path!r}"):
            self._inner.write_file(_check_path(path), data, mode)

    def read_file(self, path: str) -> bytes:
        """Read a whole file, exactly. Raises WorkspaceError with its errno."""
        with self._alone(f"read_file {path!r}"):
            return self._inner.read_file(_check_path(path))

    def freeze(self) -> None:
        """Stop every process that is there, for good, so that what is looked at next does not change by itself.

        Later calls run as ever, with what they start: the shell and the interpreter stand still between calls of
        theirs, background jobs and services stay as they are (a frozen service accepts a connection and does not
        answer). Forks are frozen as well. Idempotent. Raises WorkspaceBusy, WorkspaceLost, and WorkspaceError where a
        process does not stop.
        """
        with self._alone("freeze"):
            self._inner.freeze()

    # -- forks

    def snapshot(self) -> Snapshot:
        """Seal a fork point; the workspace goes on as if nothing had happened.

        Raises UnsupportedResource, ForkError or WorkspaceLost; the workspace is unharmed by the first two.
        """
        with self._alone("snapshot"):
            return Snapshot(self.spec, self._inner.snapshot())

    def fork(self, n: int) -> list[Workspace | WorkspaceError]:
        """Snapshot, and fork n new workspaces; a child that failed is a WorkspaceError in its place."""
        _check_count(n)
        with self.snapshot() as snapshot:
            return snapshot.fork(n)

    def restore(self, snapshot: Snapshot) -> None:
        """Roll back in place to a snapshot of this engine. Raises SnapshotClosed, ForkError, WorkspaceError."""
        with self._alone("restore"):
            self._inner.restore(snapshot._take("restore", self.spec.engine))

    # -- parking

    def park(self) -> None:
        """Seal it and end its processes; what is asked of it next wakes it. Nothing where it is parked.

        Raises UnsupportedResource, ForkError or WorkspaceLost; the workspace is unharmed by the first two. Raises
        WorkspaceBusy while somebody uses it.
        """
        with self._lock:
            self._await_parking()
            self._open("park")
            if self._parked is not None:
                return
            if self._running is not None or self._lookers:
                raise WorkspaceBusy("cannot park: the workspace is in use")
            self._parking = True
        parked: Snapshot | None = None
        try:
            parked = Snapshot(self.spec, self._inner.park())
        finally:
            with self._lock:
                self._parking = False
                self._parked, closed = parked, self._closed
                self._lock.notify_all()
            if closed and parked is not None:
                parked.close()

    def wake(self) -> None:
        """Bring a parked workspace back, as its next use would. Raises ForkError; it is parked still then."""
        with self._looking("wake"):
            return

    @property
    def parked(self) -> bool:
        """Whether it has no processes for now."""
        return self._parked is not None and not self._closed

    # -- looking

    def memory(self) -> MemoryUsage:
        """Memory of the workspace's processes, in bytes: none while it is parked."""
        inner = self._open("measure memory")
        return MemoryUsage(0, 0, 0) if self.parked else inner.memory()

    def holding(self) -> Holding:
        """What it keeps in memory; does not wake it. Far cheaper than `memory`. Raises WorkspaceError."""
        with self._lock:
            self._open("measure memory")
            parked = self._parked
        return self._inner.holding() if parked is None else parked.holding()

    def processes(self) -> list[ProcessInfo]:
        """The workspace's processes, by their pids inside it."""
        with self._looking("list processes") as inner:
            return inner.processes()

    def digest(self, origin: bytes | None = None) -> StateDigest:
        """The digest of what later calls can see: see `StateDigest`.

        `origin` names the call that was made since the last digest and the state it was made in: what cannot be
        compared and has changed since counts with a token made of it, here and in every fork. Without one it is
        random, so that such a state is equal to no other. Raises WorkspaceBusy, WorkspaceLost and WorkspaceError.
        """
        with self._alone("digest"):
            return self._inner.digest(os.urandom(16) if origin is None else origin)

    @property
    def alive(self) -> bool:
        """Whether the workspace is open and its first process lives."""
        return not self._closed and self._owner == os.getpid() and (self.parked or self._parking or self._inner.alive)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def report(self) -> ForkReport:
        """What making it cost, and what changed for it where it is a fork; after a snapshot, what going on cost."""
        return self._open("report").report

    # -- the end

    def close(self) -> None:
        """End every process and remove every trace. Idempotent. A running call returns WORKSPACE_LOST."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            inner, parked = self._inner, self._parked
        if parked is not None:
            parked.close()
        if self._owner == os.getpid():
            inner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        # A half-made object has no _closed: its engine failed, and there is nothing to close.
        if not getattr(self, "_closed", True) and self._owner == os.getpid():
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)
            self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "parked" if self.parked else "alive" if self.alive else "lost"
        return f"<Workspace {self.spec.engine} {state}>"

    def _open(self, step: str) -> EngineWorkspace:
        if self._closed:
            raise WorkspaceError(f"cannot {step}: the workspace is closed")
        if self._owner != os.getpid():
            raise WorkspaceError(
                f"cannot {step}: the workspace belongs to process {self._owner}, this is {os.getpid()}"
            )
        return self._inner

    @contextmanager
    def _alone(self, step: str) -> Iterator[None]:
        """Hold the session for one step; refuse where another holds it."""
        with self._lock:
            self._await_parking()
            self._open(step)
            if self._running is not None:
                other, since = self._running
                raise WorkspaceBusy(
                    f"cannot run {step}: {other} has been running for {time.monotonic() - since:.1f} s; wait for it, "
                    "interrupt() it, give it a timeout, or use a fork of a snapshot made before"
                )
            self._running = (step, time.monotonic())
        try:
            self._bring_back(step)
            yield
        finally:
            self._running = None

    @contextmanager
    def _looking(self, step: str) -> Iterator[EngineWorkspace]:
        """The engine's workspace, for what may be done beside a call; it is not parked meanwhile."""
        with self._lock:
            self._await_parking()
            self._open(step)
            self._lookers += 1
        try:
            self._bring_back(step)
            yield self._open(step)
        finally:
            with self._lock:
                self._lookers -= 1

    def _await_parking(self) -> None:
        """With the lock held: wait until it is parked, or is not. As long as a seal may take."""
        self._lock.wait_for(lambda: not self._parking)

    def _bring_back(self, step: str) -> None:
        """Wake it where it is parked."""
        with self._waking:
            parked = self._parked
            if parked is None:
                return
            try:
                inner = parked._take(step, self.spec.engine).wake()
            except SnapshotClosed:
                self._open(step)  # says that it was closed meanwhile
                raise
            with self._lock:
                self._inner, self._parked, closed = inner, None, self._closed
            parked.close()
            if closed:
                inner.close()
                self._open(step)


class Snapshot:
    """A sealed, immutable fork point: forked any number of times, from any thread, also after its workspace is gone."""

    def __init__(self, spec: WorkspaceSpec, inner: EngineSnapshot) -> None:
        self.spec = spec
        self._inner = inner
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._closed = False

    def fork(self, n: int) -> list[Workspace | WorkspaceError]:
        """n new workspaces in the sealed state; a child that failed is a WorkspaceError in its place.

        Raises SnapshotClosed, or ForkError where no child could even be begun.
        """
        _check_count(n)
        children = self._take("fork", self.spec.engine).fork(n) if n else []
        return [c if isinstance(c, WorkspaceError) else Workspace._around(self.spec, c) for c in children]

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write the sealed state into a new directory, for `load` in another process of this machine.

        Raises SnapshotClosed, and WorkspaceError where the engine cannot, where there is something already, or where
        it cannot be written; nothing is left then.
        """
        inner = self._take("save", self.spec.engine)
        if not hasattr(inner, "save"):
            raise WorkspaceError(f"cannot save: the engine {self.spec.engine!r} keeps its snapshots in memory only")
        inner.save(Path(directory))

    @classmethod
    def load(cls, directory: str | os.PathLike[str], image: Image | None = None) -> Snapshot:
        """What `save` wrote. `image`: the one that its workspaces started from, unless that is the host's.

        The directory must stay as it is while the snapshot or a fork of it is open: their files lie there. Load only
        what you trust: its processes go on running in every fork. Raises WorkspaceError, which names what is damaged
        or what differs: the image, the kernel, the processor, the package, the user, or the machine was restarted.
        """
        native = engines.get("native")
        inner = native.load_snapshot(Path(directory), image)  # type: ignore[attr-defined]
        return cls(inner.spec, inner)

    @property
    def size(self) -> int:
        """Bytes of memory the snapshot itself holds (its page store)."""
        return self._inner.size

    def memory(self) -> int:
        """The same as `size`."""
        return self.size

    def holding(self) -> Holding:
        """What it keeps in memory, alone and with others."""
        return self._inner.holding() if not self._closed else Holding()

    def spill(self) -> int:
        """Move what is its alone out of memory, to a disk; the next fork brings it back. Returns how many bytes."""
        return self._inner.spill() if not self._closed and self._owner == os.getpid() else 0

    @property
    def spilled(self) -> int:
        """Bytes that are out of memory."""
        return self._inner.spilled

    @property
    def report(self) -> ForkReport:
        """What making it cost, and what was left out."""
        return self._inner.report

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """Let go of the fork point; workspaces forked from it live on. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._owner == os.getpid():
            self._inner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True) and self._owner == os.getpid():
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)
            self.close()

    def __repr__(self) -> str:
        return f"<Snapshot {self.spec.engine} {'closed' if self._closed else 'open'}>"

    def _take(self, step: str, engine: str) -> EngineSnapshot:
        if self._closed:
            raise SnapshotClosed(f"cannot {step}: the snapshot is closed")
        if self._owner != os.getpid():
            raise WorkspaceError(f"cannot {step}: the snapshot belongs to process {self._owner}, this is {os.getpid()}")
        if engine != self.spec.engine:
            raise WorkspaceError(f"cannot {step}: the snapshot is of engine {self.spec.engine!r}, not {engine!r}")
        return self._inner


def _check_timeout(timeout: float) -> None:
    if not 0 < timeout < float("inf"):
        raise ValueError(f"a timeout must be a positive, finite number of seconds, not {timeout!r}")


def _check_count(n: int) -> None:
    if n < 0:
        raise ValueError(f"cannot fork {n} workspaces: give 0 or more")


def _check_path(path: str) -> str:
    if not path or "\0" in path:
        raise ValueError(f"cannot use {path!r} as a path")
    return path
