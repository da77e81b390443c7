"""What an engine is: three small protocols. Everything above them works with any engine.

Rules every engine keeps, beyond the signatures:
- A call never raises for a timeout or for the loss of its workspace: both are results.
- `close` and `interrupt` may come from another thread while `call` runs. After `close` that call returns
  WORKSPACE_LOST, soon; `close` itself is bounded and idempotent.
- Different workspaces may be used from different threads at once, and one snapshot may be forked from many.
- A failed `snapshot` leaves its workspace running and untouched. A failed child of `fork` is an error in its place and
  harms neither its siblings nor the snapshot. A closed snapshot's forks live on.
- Relative paths start at the spec's `cwd`. File errors are WorkspaceErrors with their errno.
- Calls reach an engine checked: the tool exists, and the arguments are arguments of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

if TYPE_CHECKING:
    from bunshin_gym.errors import WorkspaceError
    from bunshin_gym.state import StateDigest
    from bunshin_gym.tools import ToolCall, ToolResult
    from bunshin_gym.workspace import ForkReport, Holding, MemoryUsage, ProcessInfo, WorkspaceSpec

__all__ = ["Engine", "EngineSnapshot", "EngineWorkspace"]


class EngineWorkspace(Protocol):
    """A live workspace, as its engine sees it."""

    @property
    def alive(self) -> bool: ...

    @property
    def report(self) -> ForkReport:
        """What making it cost, and what changed for it where it is a fork."""

    def call(self, call: ToolCall, timeout: float) -> ToolResult: ...

    def write_file(self, path: str, data: bytes | BinaryIO, mode: int | None) -> None: ...

    def read_file(self, path: str) -> bytes: ...

    def read_output(self, call_id: int) -> ToolResult: ...

    def interrupt(self) -> None: ...

    def freeze(self) -> None:
        """Stop every process for good, here and in forks; what later calls start runs."""

    def background(self, on: bool) -> bool:
        """Let it run only where nobody else wants the processor, or end that; False where this cannot be done."""

    def snapshot(self) -> EngineSnapshot: ...

    def restore(self, snapshot: Any) -> None:
        """Roll back to a snapshot of the same engine."""

    def park(self) -> EngineSnapshot:
        """Seal it and end it, at once: what comes back is what `wake` makes of the snapshot, once. All or nothing."""

    def memory(self) -> MemoryUsage: ...

    def holding(self) -> Holding:
        """What it keeps in memory, found out cheaply; from any thread."""

    def digest(self, origin: bytes) -> StateDigest:
        """What later calls can see. `origin` stands for what cannot be compared and has changed since the last one."""

    def processes(self) -> list[ProcessInfo]: ...

    def close(self) -> None: ...


class EngineSnapshot(Protocol):
    """A sealed fork point, as its engine sees it."""

    @property
    def size(self) -> int:
        """Bytes of memory held by the snapshot itself."""

    @property
    def report(self) -> ForkReport: ...

    def fork(self, n: int) -> Sequence[EngineWorkspace | WorkspaceError]:
        """n children; one that failed is an error in its place."""

    def spill(self) -> int:
        """Move what is its alone out of memory until the next fork needs it; returns how many bytes that was."""

    @property
    def spilled(self) -> int:
        """Bytes that are out of memory."""

    def wake(self) -> EngineWorkspace:
        """The workspace that was parked as this. Raises ForkError, and can be tried again then."""

    def holding(self) -> Holding: ...

    def close(self) -> None: ...


class Engine(Protocol):
    """What makes workspaces. One object a process."""

    name: str

    def create(self, spec: WorkspaceSpec) -> EngineWorkspace: ...

    def features(self) -> dict[str, Any]: ...
