"""Figures from runs: ratios within a run, their medians and spread, and each beside what is to be reached."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bunshin_gym.bench.rollout.bound import Bound, Timed, bound, by_history
from bunshin_gym.bench.rollout.modes import ALONE, COLD, OURS, WARM, Mode
from bunshin_gym.bench.rollout.playing import Outcome, play_batch
from bunshin_gym.bench.rollout.workload import Batch
from bunshin_gym.looks import agree, cacheable
from bunshin_gym.report import Run
from bunshin_gym.tools import ToolResult

__all__ = ["Answers", "Figures", "Ratio", "best_of", "compare", "run"]


@dataclass(frozen=True)
class Ratio:
    """One figure against the same figure of a baseline, run by run. `goal`: at most this."""

    what: str
    against: str
    each: tuple[float, ...]
    goal: float | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.each)

    @property
    def reached(self) -> bool | None:
        return None if self.goal is None else self.median <= self.goal

    def as_dict(self) -> dict[str, Any]:
        return vars(self) | {"median": self.median, "reached": self.reached}


@dataclass
class Answers:
    """Calls whose answers in the other modes were compared with the baselines', and how many were the same.

    Only those count in which the baselines, which both ran every call, agree with each other: `by_nature` did not.
    Times and the like in a text do not count. With one baseline there is no telling, and all calls are compared.
    """

    compared: int = 0
    equal: int = 0
    by_nature: int = 0
    different: list[str] = field(default_factory=list)


_OWN = ("runs", "bounds", "histories", "answers")


@dataclass
class Figures:
    """All runs of one batch: `runs[n]` holds an outcome a mode.

    `bounds`: what caching by state could save, a run; `histories`: the same by history.
    """

    batch: str
    about: tuple[str, ...]
    rollouts: int
    calls: int
    thinking: float
    runs: list[list[Outcome]] = field(default_factory=list)
    bounds: list[Bound] = field(default_factory=list)
    histories: list[Bound] = field(default_factory=list)
    answers: list[Answers] = field(default_factory=list)

    def seen(self) -> Run | None:
        """What a page shows of the last run: the first mode that shares, beside the baselines. None: nobody watched."""
        last = [outcome.seen for outcome in self.runs[-1] if outcome.seen is not None] if self.runs else []
        ours = next((run for run in last if run.modes[0].name not in (COLD.name, WARM.name)), None)
        return ours.beside(run for run in reversed(last) if run is not ours) if ours is not None else None

    def outcomes(self, mode: str) -> list[Outcome]:
        """The outcomes of that mode, a run; empty where it was not played."""
        return [outcome for run in self.runs for outcome in run if outcome.mode == mode]

    def middle(self, mode: str, of: Callable[[Outcome], float]) -> float:
        return statistics.median(map(of, self.outcomes(mode)))

    def ratio(
        self, what: str, of: Callable[[Outcome], float], against: str, goal: float | None = None, mode: str = OURS.name
    ) -> Ratio | None:
        """Ours to theirs, run by run; None where one of them was not played."""
        pairs = list(zip(self.outcomes(mode), self.outcomes(against), strict=False))
        return Ratio(what, against, tuple(_over(of(a), of(b)) for a, b in pairs), goal) if pairs else None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        plain = {name: value for name, value in vars(self).items() if name not in _OWN}
        return plain | {
            "runs": [[outcome.as_dict() for outcome in run] for run in self.runs],
            "bounds": [vars(one) for one in self.bounds],
            "histories": [vars(one) for one in self.histories],
            "answers": [vars(one) for one in self.answers],
        }


def run(
    batch: Batch,
    modes: Sequence[Mode],
    runs: int,
    *,
    options: dict[str, Any] | None = None,
    watch: bool = False,
    on_part: Callable[[str, int], None] = lambda name, total: None,
    on_call: Callable[[ToolResult], None] | None = None,
) -> Figures:
    """Play the batch `runs` times in every mode; within a run the modes follow each other.

    A batch of busy calls is first played one rollout at a time, without thinking: what its calls take by themselves.
    With `watch`, the figures have what a page shows of the last run (`seen`).
    """
    figures = Figures(batch.name, batch.about, batch.rollouts, batch.calls, batch.thinking)
    alone: list[Outcome] = []
    if batch.busy:
        on_part(f"{batch.name}, {ALONE.name}", batch.calls)
        alone = [play_batch(batch.faster(0.0), ALONE, on_call=on_call, jobs=1)]
    for number in range(1, runs + 1):
        outcomes: list[Outcome] = []
        for mode in modes:
            on_part(f"{batch.name}, run {number} of {runs}, {mode.name}", batch.calls)
            last = watch and number == runs
            outcomes.append(play_batch(batch, mode, options=options, watch=last, on_call=on_call))
        figures.runs.append(outcomes)
        figures.bounds.append(best_of(batch, [*outcomes, *alone]))
        figures.histories.append(best_of(batch, [*outcomes, *alone], by_state=False))
        figures.answers.append(compare(outcomes))
        for outcome in outcomes:
            outcome.played.clear()  # the results of all runs would add up to a lot
            outcome.keys.clear()
    return figures


def best_of(batch: Batch, outcomes: Sequence[Outcome], *, by_state: bool = True) -> Bound:
    """What an oracle could save; each call costs the least it took anywhere in this run.

    A state is what was seen in our own mode, best without others beside it; where that was not played, and unless
    `by_state`, it is the history.
    """
    knows = {outcome.mode: outcome for outcome in outcomes if outcome.keys}
    seen = knows.get(ALONE.name, knows.get(OURS.name))
    rollouts = []
    for lot in batch.lots:
        histories = [by_history(calls, lot.task) for calls in lot.scripts]
        least: dict[Hashable, float] = {}
        for outcome in outcomes:
            for row, times in zip(histories, outcome.ran[lot.task], strict=True):
                # A rollout that failed made fewer calls than it was to make.
                for history, seconds in zip(row, times, strict=False):
                    least[history] = min(seconds, least.get(history, seconds))
        for index, calls in enumerate(lot.scripts):
            states = seen.keys[lot.task][index] if seen is not None and by_state else None
            timed, shared = [], True
            for number, call in enumerate(calls):
                history = histories[index][number]
                shared = shared and cacheable(call)
                key = history if shared else None
                if states is not None:
                    key = (lot.task, states[number]) if number < len(states) and states[number] is not None else None
                timed.append(Timed(lot.thinking[index][number], least.get(history, 0.0), key))
            rollouts.append(timed)
    return bound(rollouts, cores=len(os.sched_getaffinity(0)) if batch.busy else None)


def compare(outcomes: Sequence[Outcome]) -> Answers:
    """The answers of the other modes beside those of the baselines (or of the first mode, where there is none)."""
    found = Answers()
    private = [outcome for outcome in outcomes if outcome.mode in (COLD.name, WARM.name)] or list(outcomes[:1])
    others = [outcome for outcome in outcomes if outcome not in private]
    for task in private[0].played:
        for index, base in enumerate(private[0].played[task]):
            stable = []
            for number, expected in enumerate(base.results):
                again = [o.played[task][index].results[number : number + 1] for o in private[1:]]
                stable.append(all(agree(expected, result) for results in again for result in results))
            found.by_nature += stable.count(False)
            for other in others:
                got = other.played[task][index]
                for number, (expected, result) in enumerate(zip(base.results, got.results, strict=False)):
                    if not stable[number]:
                        continue
                    found.compared += 1
                    if agree(expected, result):
                        found.equal += 1
                        continue
                    was, now = expected.output[-200:], result.output[-200:]
                    found.different.append(f"{other.mode}, {got.name}, call {number + 1}: {was!r} is now {now!r}")
    return found


def spread(values: Iterable[float]) -> float:
    """Half the distance between the largest and the smallest, as a part of the median."""
    values = list(values)
    middle = statistics.median(values)
    return (max(values) - min(values)) / 2 / middle if middle else 0.0


def _over(a: float, b: float) -> float:
    return a / b if b else 1.0
