"""How tests of the executor begin rollouts on the dummy engine, and make their calls."""

from __future__ import annotations

from collections.abc import Callable

from bunshin_gym import ToolCall, ToolResult, Workspace, WorkspaceSpec
from bunshin_gym.executor import Executor
from bunshin_gym.rollout import Rollout

SPEC = WorkspaceSpec(engine="dummy", separate_stderr=False)
Begin = Callable[[], Rollout]


def prepare() -> Workspace:
    workspace = Workspace(SPEC)
    workspace.run("echo prepared > ready")
    return workspace


def run(executor: Executor, rollout: Rollout, command: str, timeout: float = 20.0) -> ToolResult:
    return executor.run(rollout, ToolCall("shell", {"command": command}), timeout)
