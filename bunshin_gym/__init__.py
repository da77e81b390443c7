"""bunshin_gym: live workspaces that fork, and Gymnasium environments that run on them.

Importing it registers `bunshin/Shell-v0`, `bunshin/Tools-v0` and `bunshin/Desktop-v0`, and
`gymnasium.make("bunshin_gym:bunshin/Shell-v0")` imports it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bunshin_gym.engines import features
from bunshin_gym.errors import (
    BunshinError,
    EngineUnavailable,
    ForkError,
    ImageError,
    InvalidToolCall,
    MemoryBudgetExceeded,
    PoolClosed,
    RolloutOver,
    SnapshotClosed,
    TaskError,
    TreeFileError,
    UnsupportedResource,
    WorkspaceBusy,
    WorkspaceError,
    WorkspaceLost,
)
from bunshin_gym.registration import register_all
from bunshin_gym.state import StateDigest
from bunshin_gym.tools import ExitReason, Tool, ToolCall, ToolResult
from bunshin_gym.workspace import ForkReport, MemoryUsage, ProcessInfo, Snapshot, Workspace, WorkspaceSpec

if TYPE_CHECKING:
    from bunshin_gym.env import EnvState, ShellEnv, ToolsEnv, WorkspaceEnv
    from bunshin_gym.events import Events
    from bunshin_gym.executor import Executor
    from bunshin_gym.image import Image
    from bunshin_gym.pool import RolloutPool
    from bunshin_gym.stats import Stats
    from bunshin_gym.task import Task, Taskset
    from bunshin_gym.vector import BunshinVectorEnv

__version__ = "0.1.0"

__all__ = [
    "BunshinError",
    "BunshinVectorEnv",
    "EngineUnavailable",
    "EnvState",
    "Events",
    "Executor",
    "ExitReason",
    "ForkError",
    "ForkReport",
    "Image",
    "ImageError",
    "InvalidToolCall",
    "MemoryBudgetExceeded",
    "MemoryUsage",
    "PoolClosed",
    "ProcessInfo",
    "RolloutOver",
    "RolloutPool",
    "ShellEnv",
    "Snapshot",
    "SnapshotClosed",
    "StateDigest",
    "Stats",
    "Task",
    "TaskError",
    "Taskset",
    "Tool",
    "ToolCall",
    "ToolResult",
    "ToolsEnv",
    "TreeFileError",
    "UnsupportedResource",
    "Workspace",
    "WorkspaceBusy",
    "WorkspaceEnv",
    "WorkspaceError",
    "WorkspaceLost",
    "WorkspaceSpec",
    "features",
]

# Imported when they are first used: a Workspace needs neither spaces nor renderers, and an image no environment.
_LAZY = {
    "BunshinVectorEnv": "vector",
    "EnvState": "env",
    "Events": "events",
    "Executor": "executor",
    "Image": "image",
    "RolloutPool": "pool",
    "ShellEnv": "env",
    "Stats": "stats",
    "Task": "task",
    "Taskset": "task",
    "ToolsEnv": "env",
    "WorkspaceEnv": "env",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


register_all()
