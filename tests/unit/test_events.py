"""The recorder: what an executor notes, in what order, and that seconds count once."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from unit.rollouts import Begin, run

from bunshin_gym import ToolCall, Workspace, WorkspaceSpec
from bunshin_gym.errors import WorkspaceError
from bunshin_gym.events import Events
from bunshin_gym.executor import Executor


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def executor(events: Events) -> Iterator[Executor]:
    made = Executor(group=2, snapshot_seconds=0.0, audit=0.0, events=events)
    yield made
    made.close()


def test_a_rollout_in_the_order_of_its_moves(executor: Executor, events: Events, begin: Begin) -> None:
    first, second = begin(), begin()
    run(executor, first, "echo a > f")
    run(executor, second, "echo a > f")
    run(executor, second, "echo b > g")
    executor.verify(second, lambda workspace: 1.0)
    moves = {
        rollout.number: [
            (e.kind, e.note)
            for e in events
            if e.rollout == rollout.number and e.kind in ("open", "think", "call", "judge")
        ]
        for rollout in (first, second)
    }
    assert moves[first.number] == [("open", ""), ("think", ""), ("call", "run")]
    calls = [("call", "hit"), ("think", ""), ("call", "run")]
    assert moves[second.number] == [("open", ""), ("think", ""), *calls, ("think", ""), ("judge", "")]
    steps = [e.at for e in events if e.kind == "call" and e.rollout == second.number]
    assert steps == [step.number for step in second.trail]
    inside = [e for e in events if e.kind in ("fork", "replay", "run", "digest", "snapshot", "verify")]
    assert {e.kind for e in inside if e.rollout == second.number} >= {"fork", "run", "digest", "verify"}
    (fork,) = (e for e in inside if e.kind == "fork")
    assert fork.at in {first.node.number, first.node.root.number}
    assert all(e.rollout for e in inside)


def test_own_seconds_add_up_to_the_life_of_a_rollout(executor: Executor, events: Events, begin: Begin) -> None:
    rollout = begin()
    for word in "abc":
        run(executor, rollout, f"echo {word} > f")
    mine = [e for e in events if e.rollout == rollout.number]
    life = max(e.end for e in mine) - min(e.start for e in mine)
    # What is between a move's end and the next "think" is a few instructions.
    assert sum(e.own for e in mine) == pytest.approx(life, abs=0.05)
    assert sum(total.seconds for total in events.totals.values()) == pytest.approx(sum(e.own for e in mine))
    assert not events.background


def test_a_call_that_finds_no_workspace_has_failed(executor: Executor, events: Events) -> None:
    def broken() -> Workspace:
        raise WorkspaceError("no")

    with pytest.raises(WorkspaceError):
        executor.open("broken", broken)
    assert [e.kind for e in events] == ["wait", "prepare", "open"]
    rollout = executor.open("task", lambda: Workspace(WorkspaceSpec(engine="dummy")))
    rollout.close()
    with pytest.raises(WorkspaceError):
        executor.run(rollout, ToolCall("shell", {"command": "echo"}), 5.0)
    assert [e.note for e in events if e.kind == "call"] == ["failed"]
    assert executor.events is events


def test_audits_are_background(events: Events) -> None:
    executor = Executor(audit=1.0, events=events)
    rollouts = [executor.open("task", lambda: Workspace(WorkspaceSpec(engine="dummy"))) for _ in range(2)]
    for rollout in rollouts:
        run(executor, rollout, "echo a > f")
    executor.auditor.drain()
    for rollout in rollouts:
        rollout.close()
    executor.close()
    (audit,) = (e for e in events if e.kind == "audit")
    assert (audit.rollout, audit.thread) == (0, "bunshin-audit")
    assert events.background["audit"].count == 1


def test_spans_nest_and_what_is_inside_counts_once(events: Events) -> None:
    with events.span("outer", rollout=7) as outer:
        events.add("evict", note="3 MB")
        with events.span("inner", at=3):
            events.add("park", seconds=0.25)
        outer.note = "late"
    evict, park, inner, whole = events
    assert [e.rollout for e in (evict, park, inner, whole)] == [7, 7, 7, 7]
    assert (inner.at, whole.note, evict.note) == (3, "late", "3 MB")
    assert park.own == park.seconds == 0.25
    assert inner.own == 0.0  # it says that all its time, and more, went into parking
    assert whole.own == pytest.approx(whole.seconds - inner.seconds)
    assert events.totals["park"].seconds == 0.25
    with events.span("later"):
        pass
    assert list(events)[-1].rollout == 0


def test_only_the_last_are_kept_and_the_totals_are_of_all() -> None:
    events = Events(limit=100)

    def note() -> None:
        for _ in range(200):
            with events.span("run", rollout=1):
                pass

    threads = [threading.Thread(target=note) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(events), events.dropped, events.totals["run"].count) == (100, 700, 800)
    with pytest.raises(ValueError, match="limit must be at least 1"):
        Events(limit=0)
