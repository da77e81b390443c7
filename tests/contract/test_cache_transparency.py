"""Law 3 on each engine: what rollouts see with a cache, in every way of having one, is what they see without."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import needs
from bunshin_gym import ToolCall, ToolResult
from bunshin_gym.bench.laws import CALLS, Program, check, programs
from bunshin_gym.executor import Executor


@settings(max_examples=6, deadline=None, derandomize=True)  # bench laws looks further
@given(
    st.lists(st.sampled_from(CALLS), min_size=2, max_size=5).flatmap(
        lambda few: st.lists(st.tuples(st.integers(0, 2), st.sampled_from(few)), min_size=6, max_size=14)
    ),
    st.frozensets(st.integers(0, 13)),
)
def test_random_programs(calls: list[tuple[int, ToolCall]], losses: frozenset[int]) -> None:
    needs.require("engine native")
    found = check([Program(3, tuple(calls), losses)], "native")
    assert not found.differences, str(found.differences[0])
    assert not found.false, found.calls_false


@pytest.mark.thorough
def test_more_random_programs() -> None:
    needs.require("engine native")
    found = check(programs(8, seed=1), "native")
    assert not found.differences, str(found.differences[0])
    assert not found.false, found.calls_false
    assert found.hits > 30 < found.audited


def test_an_answer_of_another_state_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is checked can fail: a cache that answers from anywhere."""
    needs.require("engine native")
    answers: dict[bytes, ToolResult] = {}
    run = Executor.run

    def anywhere(self: Executor, rollout: object, call: ToolCall, timeout: float) -> ToolResult:
        result = run(self, rollout, call, timeout)  # type: ignore[arg-type]
        return answers.setdefault(call.key(), result) if self.cache else result

    monkeypatch.setattr(Executor, "run", anywhere)
    shell = [ToolCall("shell", {"command": command}) for command in ("cat f", "echo a > f", "cat f")]
    found = check([Program(1, tuple((0, call) for call in shell))], "native")
    assert [(one.at, one.way) for one in found.differences][:1] == [(2, "state")]
    assert "> 0:" in str(found.differences[0])
