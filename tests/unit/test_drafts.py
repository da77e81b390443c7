"""Drafts: right guesses are adopted, wrong ones leave no trace, and nobody can tell from what calls give."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium as gym
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.rollouts import Begin, prepare, run

from bunshin_gym import ToolCall, ToolResult
from bunshin_gym.engines.dummy import DummyEngine, DummyWorkspace, Faults
from bunshin_gym.env import ShellEnv
from bunshin_gym.executor import Executor
from bunshin_gym.speculate import Callback, Drafts
from bunshin_gym.speculate.draft import Phase, Run
from bunshin_gym.speculate.learned import Learned
from bunshin_gym.speculate.past import Made
from bunshin_gym.speculate.worth import Worth
from bunshin_gym.tools import ExitReason

Named = list[tuple[ToolCall | str, float]]


class Eager(Worth):
    """Takes any guess to be worth its cost."""

    def gain(self, probability: float, seconds: float, *, owed: float = 0.0, seal: bool = False) -> float:
        return probability


class Oracle:
    """Names what it is told to name."""

    def __init__(self) -> None:
        self.named: list[str] = []

    def __call__(self, history: Sequence[Made], text: str) -> Named:
        return [(command, 0.9 / len(self.named)) for command in self.named]


def speculating(executor: Executor, oracle: Callable[[Sequence[Made], str], Any], places: int = 2) -> Drafts:
    """Have an executor speculate on what the oracle names, whatever it is worth."""
    mix = Learned("callback", [Callback(oracle)])
    drafts = Drafts(
        places, mix, executor._materialiser, executor.tree, executor.stats, worth=Eager(), processors=places + 2
    )
    executor.speculator = drafts
    return drafts


@pytest.fixture
def executor(faults: Faults) -> Iterator[Executor]:
    with_end = Executor(audit=0.0)
    yield with_end
    with_end.close()


@pytest.fixture
def oracle() -> Oracle:
    return Oracle()


@pytest.fixture
def drafts(executor: Executor, oracle: Oracle) -> Drafts:
    return speculating(executor, oracle)


def only(drafts: Drafts) -> Run:
    (draft,) = drafts._drafts
    return draft


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """What drafts call does not end before the second event; the first says that it has begun."""
    running, go = threading.Event(), threading.Event()
    call = DummyWorkspace.call

    def held(workspace: DummyWorkspace, it: ToolCall, timeout: float) -> ToolResult:
        if threading.current_thread().name.startswith("bunshin-draft"):
            running.set()
            while not go.wait(0.01) and workspace.alive:
                pass
        return call(workspace, it, timeout)

    monkeypatch.setattr(DummyWorkspace, "call", held)
    yield running, go
    go.set()


def test_a_right_guess_is_adopted(drafts: Drafts, executor: Executor, oracle: Oracle, begin: Begin) -> None:
    """Also one that changes things: it is done once, and the rollout goes on from there."""
    rollout = begin()
    oracle.named = ["echo more >> log; export A=5; cd /tmp"]
    run(executor, rollout, "echo first > log")
    assert drafts.settle(60)
    assert only(drafts).phase is Phase.READY
    oracle.named = []
    assert run(executor, rollout, "echo more >> log; export A=5; cd /tmp").output == ""
    assert rollout.answered == "draft"
    assert run(executor, rollout, "cat /work/log; echo $A; pwd").output == "first\nmore\n5\n/tmp\n"
    stats = executor.stats
    assert (stats.drafts_proposed, stats.drafts_begun, stats.drafts, stats.drafts_squashed) == (1, 1, 1, 0)
    assert stats.drafts_saved_seconds > 0
    assert stats.drafts_wasted_seconds == 0


def test_a_wrong_guess_leaves_no_trace(
    drafts: Drafts, executor: Executor, oracle: Oracle, begin: Begin, dummy: DummyEngine
) -> None:
    rollout = begin()
    before = dummy.live
    oracle.named = ["rm log; exit 3", "export A=5"]
    run(executor, rollout, "echo first > log")
    assert drafts.settle(60)
    assert [draft.phase for draft in drafts._drafts] == [Phase.READY] * 2
    oracle.named = []
    assert run(executor, rollout, "cat log; echo $A").output == "first\n\n"
    assert rollout.answered == "run"
    assert drafts.settle(60)
    assert dummy.live == before
    drafts.close()
    assert (executor.stats.drafts, executor.stats.drafts_squashed) == (0, 2)
    assert executor.stats.drafts_wasted_seconds > 0


def test_a_draft_is_adopted_while_it_runs(
    drafts: Drafts,
    executor: Executor,
    oracle: Oracle,
    begin: Begin,
    gate: tuple[threading.Event, threading.Event],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever waits for it waits for something that does not run in the background any more."""
    running, go = gate
    rollout = begin()
    oracle.named = ["echo x >> log; cat log"]
    run(executor, rollout, "echo first > log")
    assert running.wait(60)
    draft = only(drafts)
    assert draft.in_background
    switched: list[bool] = []
    background = DummyWorkspace.background

    def recorded(workspace: DummyWorkspace, on: bool) -> bool:
        switched.append(on)
        go.set()  # only now can it end: the rollout waits for it
        return background(workspace, on)

    monkeypatch.setattr(DummyWorkspace, "background", recorded)
    oracle.named = []
    assert run(executor, rollout, "echo x >> log; cat log").output == "first\nx\n"
    assert rollout.answered == "draft"
    assert switched == [False]
    assert rollout.workspace is not None


def test_another_time_limit_is_another_call(drafts: Drafts, executor: Executor, oracle: Oracle, begin: Begin) -> None:
    rollout = begin()
    oracle.named = ["echo x"]
    run(executor, rollout, "echo first > log")
    assert drafts.settle(60)
    run(executor, rollout, "echo x", timeout=7.0)
    assert rollout.answered == "run"


def test_a_sibling_in_the_same_state_may_have_it(
    drafts: Drafts, executor: Executor, oracle: Oracle, begin: Begin
) -> None:
    """It came there another way: what it adopts has the history of the draft."""
    first, second = begin(), begin()
    oracle.named = ["cat log > copy"]
    run(executor, first, "echo one > log")
    assert drafts.settle(60)
    ready = only(drafts)
    run(executor, second, "printf 'one\\n' > log")
    assert second.node.state is first.node.state
    oracle.named = []
    run(executor, second, "cat log > copy")
    assert second.answered == "draft"
    assert ready.phase is Phase.ADOPTED
    assert run(executor, second, "cat copy").output == "one\n"
    assert run(executor, first, "cat log > copy; cat copy").output == "one\n"


def test_what_is_owed_is_paid_in_the_draft(drafts: Drafts, executor: Executor, oracle: Oracle, begin: Begin) -> None:
    """After hits the rollout has no workspace where it stands; the draft replays what was skipped."""
    first, second = begin(), begin()
    for command in ("echo a > a", "echo b > b"):
        run(executor, first, command)
    run(executor, second, "echo a > a")
    oracle.named = ["cat a b"]
    run(executor, second, "echo b > b")
    assert (second.answered, second.workspace) == ("hit", None)
    assert drafts.settle(60)
    oracle.named = []
    replays = executor.stats.replays
    assert run(executor, second, "cat a b").output == "a\nb\n"
    assert second.answered == "draft"
    assert executor.stats.replays == replays


@pytest.mark.parametrize("command", ["date", "sleep 5 & true", "cat log"])
def test_some_calls_are_not_drafted(
    command: str, drafts: Drafts, executor: Executor, oracle: Oracle, begin: Begin
) -> None:
    """What looks outside, what leaves something running, and what is in the tree anyway."""
    first, second = begin(), begin()
    for each in ("echo first > log", "cat log"):
        run(executor, first, each)
    oracle.named = [command]
    run(executor, second, "echo first > log")
    assert drafts.settle(60)
    assert drafts._drafts == []
    assert executor.stats.drafts_proposed == 0


def test_nothing_is_drafted_beside_what_runs_by_itself(
    drafts: Drafts, executor: Executor, oracle: Oracle, begin: Begin
) -> None:
    rollout = begin()
    run(executor, rollout, "sleep 5 & true")
    oracle.named = ["cat ready"]
    run(executor, rollout, "echo first > log")
    assert drafts.settle(60)
    assert executor.stats.drafts_proposed == 0


def test_a_draft_that_meets_its_limit_is_not_adopted(
    drafts: Drafts, executor: Executor, oracle: Oracle, begin: Begin
) -> None:
    rollout = begin()
    oracle.named = ["sleep 100"]
    run(executor, rollout, "echo first > log", timeout=0.3)
    assert drafts.settle(60)
    assert drafts._drafts == []
    oracle.named = []
    assert run(executor, rollout, "sleep 100", timeout=0.3).exit_reason is ExitReason.TIMEOUT
    assert rollout.answered == "run"


def test_closing_a_rollout_ends_what_runs_for_it(
    drafts: Drafts,
    executor: Executor,
    oracle: Oracle,
    begin: Begin,
    dummy: DummyEngine,
    gate: tuple[threading.Event, threading.Event],
) -> None:
    running, _ = gate
    rollout = begin()
    oracle.named = ["echo x"]
    run(executor, rollout, "echo first > log")
    assert running.wait(60)
    rollout.close()
    assert drafts.settle(60)
    drafts.close()
    assert dummy.live == 0


def test_the_end_ends_what_runs(
    drafts: Drafts,
    executor: Executor,
    oracle: Oracle,
    begin: Begin,
    dummy: DummyEngine,
    gate: tuple[threading.Event, threading.Event],
) -> None:
    running, _ = gate
    oracle.named = ["echo x", "echo y", "echo z"]
    rollout = begin()
    run(executor, rollout, "echo first > log")
    assert running.wait(60)
    executor.close()
    assert dummy.live == 1  # the rollout's own
    assert run(executor, rollout, "cat log").output == "first\n"


def test_a_fork_that_fails_is_nobodys_trouble(
    drafts: Drafts, executor: Executor, oracle: Oracle, begin: Begin, faults: Faults
) -> None:
    rollout = begin()
    faults.fail_snapshots = 1
    oracle.named = ["echo x"]
    run(executor, rollout, "echo first > log")
    assert drafts.settle(60)
    assert not rollout.forkable
    assert run(executor, rollout, "echo x; cat log").output == "x\nfirst\n"
    assert drafts.settle(60)
    assert executor.stats.drafts_begun == 1


def test_where_there_is_no_background_drafts_give_way(
    executor: Executor,
    oracle: Oracle,
    begin: Begin,
    gate: tuple[threading.Event, threading.Event],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(DummyWorkspace, "background", lambda workspace, on: False)
    running, _ = gate
    drafts = speculating(executor, oracle, places=1)
    drafts._processors = 2
    first, second = begin(), begin()
    oracle.named = ["echo x"]
    run(executor, first, "echo first > log")
    assert running.wait(60)
    drafts._calling.add(first)  # one processor is taken, the draft has the other
    oracle.named = []
    run(executor, second, "echo second > log")
    assert executor.stats.drafts_squashed == 1


def test_the_least_valuable_go_first(drafts: Drafts, executor: Executor, oracle: Oracle, begin: Begin) -> None:
    rollout = begin()
    oracle.named = ["echo x", "echo y"]
    run(executor, rollout, "echo first > log")
    assert drafts.settle(60)
    least = min(drafts._drafts, key=lambda draft: draft.gain)
    assert drafts.squash(1) == 1
    assert least.phase is Phase.SQUASHED
    assert drafts.squash() == 1
    assert drafts.squash() == 0


def test_only_what_pays_is_drafted() -> None:
    worth = Worth(fork=0.02, seal=0.03)
    call = ToolCall("shell", {"command": "make test"})
    assert worth.seconds("t", call) == 0
    worth.learn("t", call, ToolResult("", duration=2.0))
    assert worth.seconds("t", call) == 2
    assert worth.seconds("u", ToolCall("shell", {"command": "make test FAST=1"})) == 2  # of the same kind
    assert worth.gain(0.9, 2.0) > worth.gain(0.9, 2.0, seal=True) > 1
    assert worth.gain(0.9, 0.01) == 0  # forking costs more
    assert worth.gain(0.1, 2.0) == 0  # too much would be wasted
    assert worth.gain(0.9, 0.01, owed=1.0) > 0  # what is owed is won, too
    worth.learn("t", call, ToolResult("", exit_reason=ExitReason.TIMEOUT, duration=30.0))
    assert worth.seconds("t", call) == 0


def test_through_an_environment() -> None:
    """What the policy has written already is made before it has asked for it, if need be in place of a lesser guess."""
    env = gym.make("bunshin/Shell-v0", engine="dummy", speculate=1, predict=lambda history, text: [("ls", 0.3)])
    shell = env.unwrapped
    assert isinstance(shell, ShellEnv)
    with contextlib.closing(shell):
        drafts = shell._executor.speculator
        assert isinstance(drafts, Drafts)
        drafts.worth, drafts._processors = Eager(), 4
        shell.reset(seed=1)
        shell.step("echo a > a")
        assert drafts.settle(60)
        assert any(draft.phase is Phase.READY for draft in drafts._drafts)
        shell.hint("Let us see.\n```bash\ncat a; echo b > b\n```")
        assert drafts.settle(60)
        assert shell.step("cat a; echo b > b")[0] == "a\n"
        assert shell.stats.drafts == 1


def test_what_cannot_be_is_refused() -> None:
    for options in ({"speculate": -1}, {"speculate": 1, "share": False}):
        with pytest.raises(ValueError, match="speculate"):
            Executor(**options)  # type: ignore[arg-type]


COMMANDS = [
    "echo a >> log",
    "cat log",
    "rm -f log",
    "x=$x.; echo $x",
    "cd /tmp; pwd",
    "cd /work",
    "ls",
    "export y=1; echo $y$x",
    "cat missing",
    "exit 3",
]
steps = st.lists(
    st.tuples(
        st.integers(0, 1),  # which rollout
        st.sampled_from(COMMANDS),
        st.lists(st.sampled_from(COMMANDS), max_size=2, unique=True),  # what is guessed to come next, there
        st.booleans(),  # whether the guesses are made before the other rollout goes on
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps, key=st.sampled_from(["state", "history"]))
def test_nobody_can_tell(steps: list[tuple[int, str, list[str], bool]], key: Any, dummy: DummyEngine) -> None:
    """Law 4: with drafts and without, every call gives the same, however rollouts and drafts interleave."""
    seen: list[list[tuple[str, int | None]]] = []
    for speculative in (True, False):
        executor = Executor(audit=0.0, key=key)
        oracle = Oracle()
        drafts = speculating(executor, oracle) if speculative else None
        rollouts = [executor.open("task", prepare) for _ in range(2)]
        results = []
        for number, (which, command, guesses, wait) in enumerate(steps):
            oracle.named = [*guesses, *(later[1] for later in steps[number + 1 :] if later[0] == which)][:3]
            result = run(executor, rollouts[which], command)
            results.append((result.output, result.exit_code))
            if wait and drafts is not None:
                assert drafts.settle(60)
        seen.append(results)
        for rollout in rollouts:
            rollout.close()
        executor.close()
        assert dummy.live == 0
    assert seen[0] == seen[1]


@pytest.fixture
def bounded(faults: Faults) -> Iterator[Executor]:
    with_end = Executor(audit=0.0, memory_budget="1G")
    yield with_end
    with_end.close()


def test_drafts_are_the_first_to_go_where_memory_is_short(bounded: Executor, oracle: Oracle) -> None:
    drafts = speculating(bounded, oracle)
    first, second = (bounded.open("task", prepare) for _ in range(2))
    run(bounded, first, "x=1")
    assert drafts.settle(60)
    oracle.named = ["echo $x > drafted"]
    run(bounded, second, "y=$RANDOM")
    assert drafts.settle(60)
    assert only(drafts).phase is Phase.READY
    bounded.ledger.budget = bounded.ledger.count() - 1
    run(bounded, third := bounded.open("task", prepare), "z=$RANDOM")
    assert bounded.stats.drafts_squashed == 1
    bounded.ledger.budget = 1
    run(bounded, first, "x=2")
    assert drafts.settle(60)
    assert bounded.stats.parked > 0 and not [draft for draft in drafts._drafts if draft.phase is Phase.READY]
    assert run(bounded, first, "echo $x").output == "2\n"
    for rollout in (first, second, third):
        rollout.close()
