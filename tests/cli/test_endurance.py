"""bench rollout, the long modes: what they count is what happened."""

from __future__ import annotations

import pytest

from bunshin_gym.bench.rollout import playing
from bunshin_gym.bench.rollout.audits import Audits, audit
from bunshin_gym.bench.rollout.many import Many, play_many
from bunshin_gym.bench.rollout.soak import Level, Soak, soak
from bunshin_gym.bench.rollout.workload import Batch, Lot
from bunshin_gym.cli import endurance
from bunshin_gym.task import Task
from bunshin_gym.tools import ToolCall
from bunshin_gym.workspace import Workspace, WorkspaceSpec


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "_SETTLE", 0.0)


def batch(*scripts: tuple[str, ...]) -> Batch:
    calls = tuple(tuple(ToolCall("shell", {"command": command}) for command in script) for script in scripts)
    thinking = tuple(tuple(99.0 for _ in script) for script in scripts)
    names = tuple(f"tiny {n}" for n in range(len(scripts)))
    return Batch("tiny", (Lot("tiny", names, calls, thinking, lambda: Workspace(WorkspaceSpec(engine="dummy")), 10),))


def test_audits_go_on_until_there_are_enough() -> None:
    found = audit(lambda number: [batch(("echo a", f"echo {number}"), ("echo a", f"echo {number}"))], 5)
    assert found.audited >= 5
    assert found.rounds >= 3
    assert (found.false, found.failures) == (0, [])
    assert found.hits <= found.calls == 4 * found.rounds


def test_audits_end_where_nothing_recurs() -> None:
    found = audit(lambda number: [batch(("echo a",), ("echo b",))], 5)
    assert (found.rounds, found.audited, found.hits) == (1, 0, 0)


def test_false_hits_are_told_by_call() -> None:
    found = Audits(10)
    found.take({"calls": 9, "hits": 4, "waits": 1, "audits": 3, "false_hits": 1, "false_hit_calls": ["shell 'date'"]})
    assert (found.hits, found.audited, found.false) == (5, 3, 1)
    assert "false: shell 'date' (1 times)" in endurance.audit_lines(found)


# A table as the practice tasks have one, without pandas.
_TABLE = """
class Column(list):
    sum = lambda self: sum(list(self))
class Table:
    __len__ = lambda self: 4
    __setitem__ = lambda self, name, value: setattr(self, name, Column([value] * 4))
table = Table()
"""


@pytest.mark.needs("engine native")
@pytest.mark.parametrize("budget", [None, "1M"])
def test_many_rollouts_find_their_own_state(budget: str | None) -> None:
    found = play_many(Task("small", "", setup=(ToolCall("python", {"code": _TABLE}),)), 6, jobs=3, memory_budget=budget)
    assert (found.opened, found.answered) == (6, 6)
    assert (found.wrong, found.failures) == ([], [])
    assert 0 < found.one < found.own == 6 * found.one
    assert found.stats["prepared"] == 1
    text = "\n".join(endurance.many_lines(found))
    assert "find their state again" in text
    assert (found.stats["parked"] > 0) == (budget is not None) == ("memory as counted" in text)


@pytest.mark.needs("engine native")
def test_a_rollout_that_is_told_something_else_is_named() -> None:
    broken = _TABLE + "Column.sum = lambda self: 400\n"
    found = play_many(Task("broken", "", setup=(ToolCall("python", {"code": broken}),)), 2)
    assert found.answered == 0
    assert len(found.wrong) == 2


def test_epochs_are_looked_at_between() -> None:
    task = Task("tiny", "", scripts={"a": ("echo a",), "b": ("echo a", "echo b")})
    found = soak([task], 0.5, rollouts=4, engine="dummy")
    assert found.epochs == len(found.levels) >= 2
    assert found.calls == found.epochs * 4 * 2 + found.epochs * (1 + 2 + 1 + 2)
    assert not found.failures
    nodes = [level.nodes for level in found.levels]
    assert nodes == sorted(nodes)  # each epoch begins in a state of its own
    assert "rss" in "\n".join(endurance.soak_lines(found))


def test_growth_is_between_quarters() -> None:
    def level(n: int) -> Level:
        return Level(n, n, 100 * n, 7, 3, 1, 0, 5, 2, n, 0, 0)

    growth = Soak(levels=[level(n) for n in range(8)]).growth()
    assert growth["rss"] == (250, 650)
    assert growth["stores"] == (7, 7)


def test_many_are_printed() -> None:
    text = "\n".join(endurance.many_lines(Many(256, opened=256, answered=256, one=200_000_000, peak=7 << 30)))
    assert "51200 MB" in text and "7516 MB" in text
