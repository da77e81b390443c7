"""What the laws are tried with: commands both a real bash and the twin understand, and what is looked at."""

from __future__ import annotations

from bunshin_gym import ExitReason, ToolCall, ToolResult, Workspace, WorkspaceError

COMMANDS = [
    "pwd",
    "echo hello",
    "X=1; Y=two",
    "X=$((X+1)); echo $X",
    'echo "$X-$Y-$Z"',
    "export Z=3",
    "mkdir -p d/e && cd d",
    "cd ..; pwd",
    "cd /nowhere",
    "echo line >> log.txt; wc -l log.txt",
    "cat log.txt",
    "rm -f log.txt",
    "printf 'a\\nb\\nc\\n' > three.txt; head -n 2 three.txt",
    "ls",
    "ls -A d",
    "test -f three.txt && echo yes || echo no",
    "false",
    "echo out; echo err >&2",
    "exit 3",
    "sleep 0.01",
    "nosuchcommand",
    "echo $?",
    "(cd /; pwd; exit 4)",
    "seq 5 | tail -n 1",
    "seq 3 > n.txt; sort -rn n.txt",
]


def seen(result: ToolResult) -> tuple[str, bytes, int | None, ExitReason]:
    """What must be equal: not the time it took."""
    return result.output, result.stdout, result.exit_code, result.exit_reason


def python(workspace: Workspace, code: str) -> str:
    return workspace.call(ToolCall("python", {"code": code})).output.strip()


def one_fork(workspace: Workspace) -> Workspace:
    (child,) = forks(workspace, 1)
    return child


def forks(workspace: Workspace, n: int) -> list[Workspace]:
    children = workspace.fork(n)
    failed = [child for child in children if isinstance(child, WorkspaceError)]
    assert not failed, failed
    return [child for child in children if isinstance(child, Workspace)]
