"""Small tasks for tests of the environments, on any engine."""

from __future__ import annotations

from bunshin_gym import Task, Taskset, Workspace


def _holds_right(workspace: Workspace) -> float:
    return 1.0 if workspace.run("cat answer").output == "right\n" else 0.25


def _broken(workspace: Workspace) -> float:
    raise RuntimeError("no verdict")


ANSWER = Task("answer", "Write right into answer.", setup=("echo wrong > answer",), verifier=_holds_right, step_limit=4)
COUNT = Task("count", "Count.", files={"n": b"0\n"}, step_limit=3)
BROKEN = Task("broken", "Nobody can.", verifier=_broken)
NONSENSE = Task("nonsense", "Nobody can.", verifier=lambda workspace: 7.0)
TASKS = Taskset([ANSWER, COUNT], "test")
