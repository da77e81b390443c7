"""What can go wrong, each error one sentence with a place: the step, the object, the reason.

Every class inherits `BunshinError` and, where one fits, a standard class, so that a caller may catch either.
A call that times out, or whose workspace dies, is not an error here: it is a `ToolResult` that says so.
"""

from __future__ import annotations

__all__ = [
    "BunshinError",
    "EngineUnavailable",
    "ForkError",
    "ImageError",
    "InvalidToolCall",
    "MemoryBudgetExceeded",
    "PoolClosed",
    "RolloutOver",
    "SnapshotClosed",
    "TaskError",
    "TreeFileError",
    "UnsupportedResource",
    "WorkspaceBusy",
    "WorkspaceError",
    "WorkspaceLost",
]


class BunshinError(Exception):
    """The base of every error this package raises on purpose."""


class WorkspaceError(BunshinError, OSError):
    """Creating or using a workspace failed. `errno` is set where the system gave one."""

    def __init__(self, message: str, *, errno: int | None = None) -> None:
        super().__init__(message)
        self.errno = errno


class WorkspaceLost(WorkspaceError):
    """The workspace's first process is gone, and everything in it with it."""


class WorkspaceBusy(WorkspaceError):
    """A call was sent to a session while another one is running. Names the running call and the ways on."""


class MemoryBudgetExceeded(WorkspaceError, TimeoutError):
    """The memory budget has had no room for one more workspace for as long as one was ready to wait."""


class ForkError(WorkspaceError):
    """Sealing or rebuilding failed. The source runs on, untouched."""


class UnsupportedResource(ForkError):
    """A process holds something that cannot be forked; found before anything was changed.

    `pid` and `comm` name the process inside the workspace, `fd` the descriptor (None where it is not one).
    """

    def __init__(
        self,
        message: str,
        *,
        pid: int = 0,
        comm: str = "",
        fd: int | None = None,
        reason: str = "",
        errno: int | None = None,
    ) -> None:
        super().__init__(message, errno=errno)
        self.pid = pid
        self.comm = comm
        self.fd = fd
        self.reason = reason


class SnapshotClosed(BunshinError, ValueError):
    """A closed snapshot was forked or restored."""


class InvalidToolCall(BunshinError, ValueError):
    """A tool call names no known tool, has wrong arguments, or is not JSON; the text says how to do better."""


class RolloutOver(BunshinError, RuntimeError):
    """A rollout was used that is over, was not begun, or was closed."""


class PoolClosed(BunshinError, RuntimeError):
    """A pool of rollouts was used before it was opened, after it was closed, or from another event loop."""


class ImageError(BunshinError, OSError):
    """An image could not be found, unpacked or built."""


class TaskError(BunshinError):
    """A task could not be found, prepared or verified."""


class TreeFileError(BunshinError, ValueError):
    """The file of a call tree could not be read or written, is damaged, or is of another version."""


class EngineUnavailable(BunshinError, RuntimeError):
    """The engine asked for is unknown, or cannot work on this machine; says why and what there is instead."""
