"""Drafts on the native engine: forks of a live workspace, in the background, adopted or gone without a trace."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pytest
from unit.rollouts import run

from bunshin_gym import Workspace, WorkspaceSpec
from bunshin_gym.executor import Executor
from bunshin_gym.rollout import Rollout
from bunshin_gym.speculate import Callback, Drafts
from bunshin_gym.speculate.draft import Phase
from bunshin_gym.speculate.learned import Learned
from bunshin_gym.speculate.past import Made
from bunshin_gym.speculate.worth import Worth

pytestmark = [pytest.mark.engine("native")]

SPEC = WorkspaceSpec(engine="native", separate_stderr=False, call_timeout=60.0)
T = TypeVar("T")
IDLE = "5"  # SCHED_IDLE


class Eager(Worth):
    def gain(self, probability: float, seconds: float, *, owed: float = 0.0, seal: bool = False) -> float:
        return probability


class Scene:
    """A rollout on an executor that drafts what `named` says."""

    def __init__(self) -> None:
        self.named: list[str] = []
        self.executor = Executor(audit=0.0)
        self.drafts = Drafts(
            2,
            Learned("callback", [Callback(self.predict)]),
            self.executor._materialiser,
            self.executor.tree,
            self.executor.stats,
            worth=Eager(),
            processors=8,
        )
        self.executor.speculator = self.drafts
        self.rollout: Rollout = self.executor.open("task", lambda: Workspace(SPEC))

    def predict(self, history: Sequence[Made], text: str) -> list[tuple[str, float]]:
        return [(command, 0.9 / len(self.named)) for command in self.named]

    def run(self, command: str) -> str:
        return run(self.executor, self.rollout, command, timeout=60.0).output


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.rollout.close()
    made.executor.close()


def until(there: Callable[[], T]) -> T:
    """What `there` gives, once that is something."""
    for _ in range(6000):
        if found := there():
            return found
        time.sleep(0.01)
    raise TimeoutError


def can_be_in_the_background() -> bool:
    with Workspace(SPEC) as workspace:
        able = workspace.background(True)
        assert not able or workspace.background(False)
        return able


def test_a_call_that_changes_things_is_made_once_and_adopted(scene: Scene) -> None:
    scene.named = ["echo more >> log; X=$X.; cd /tmp"]
    scene.run("echo first > log; X=a")
    assert scene.drafts.settle(60)
    assert [draft.phase for draft in scene.drafts._drafts] == [Phase.READY]
    scene.named = []
    scene.run("echo more >> log; X=$X.; cd /tmp")
    assert scene.rollout.answered == "draft"
    assert scene.run("cat /work/log; echo $X; pwd") == "first\nmore\na.\n/tmp\n"


def test_a_wrong_guess_is_not_seen(scene: Scene) -> None:
    """Not in files, not in the shell, not in processes: the fixture that looks for residue sees to what is outside."""
    scene.named = ["rm -rf /work/*; exec 3>&1; exit 3", "python3 -c 'import time; time.sleep(100)'"]
    scene.run("echo first > log; X=a")
    before = scene.run("ls; echo $X; ls /proc | grep -c '^[0-9]'")
    scene.named = []
    assert scene.run("ls; echo $X; ls /proc | grep -c '^[0-9]'") == before
    scene.drafts.close()
    assert scene.executor.stats.drafts_squashed == scene.executor.stats.drafts_proposed > 0
    assert scene.run("cat log") == "first\n"


def test_a_draft_runs_in_the_background_until_somebody_waits_for_it(scene: Scene) -> None:
    """The script ends when it is not in the background any more: that is, when the rollout has asked for it."""
    able = can_be_in_the_background()
    policy = "awk '/^policy/ { print $3 }' /proc/self/sched"
    script = f'first=$({policy}); while [ "$({policy})" = {IDLE} ]; do sleep 0.02; done; echo $first > first'
    scene.named = ["bash script"]
    scene.run(f"cat > script <<'EOF'\n{script}\nEOF")
    (draft,) = until(lambda: scene.drafts._drafts)
    if able:
        until(lambda: draft.scout.workspace and any(p.comm == "sleep" for p in draft.scout.workspace.processes()))
    else:
        assert scene.drafts.settle(60)
    scene.named = []
    scene.run("bash script")
    assert scene.rollout.answered == "draft"
    assert (scene.run("cat first").strip() == IDLE) == able
    assert scene.run(f"{policy}; bash script; cat first").split() == ["0", "0"]


def test_a_workspace_in_the_background_and_back() -> None:
    with Workspace(SPEC) as workspace:
        workspace.run("sleep 1000 & sleeper=$!")
        everyone = "for pid in self $$ $sleeper; do awk '/^policy/ { print $3 }' /proc/$pid/sched; done"
        session = "awk '{ print $3 }' /proc/self/autogroup 2>/dev/null"
        usual = workspace.run(everyone).output.split()
        assert IDLE not in usual
        able = workspace.background(True)
        assert workspace.run(everyone).output.split() == ([IDLE] * 3 if able else usual)
        assert workspace.run(session).output in (("19\n", "") if able else ("0\n", ""))
        assert workspace.background(False) == able
        assert workspace.run(everyone).output.split() == usual
        assert workspace.run(session).output in ("0\n", "")
        assert workspace.run("kill $sleeper").ok
