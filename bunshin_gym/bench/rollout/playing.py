"""One batch, played in one mode: memory and time while it runs, and what each call gave and took."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from bunshin_gym.bench.rollout.modes import Mode
from bunshin_gym.bench.rollout.workload import Batch, Lot
from bunshin_gym.executor import Executor
from bunshin_gym.group import Group, Played, play
from bunshin_gym.report import Run, Watch
from bunshin_gym.stats import Stats
from bunshin_gym.tools import ToolResult
from bunshin_gym.tree import Step

__all__ = ["Outcome", "play_batch"]

_AUDITS = 600.0  # seconds that audits which still wait at the end may take; they are not part of what is measured
_SETTLE = 1.0  # seconds in which the kernel takes down what the mode before has left


@dataclass
class Outcome:
    """What a mode took. Bytes, seconds, byte-seconds; counts of calls.

    `seconds`: from the first rollout's first thought to the last one's verdict. `ends`: the same for each task.
    `waited`: what each call took as its rollout saw it, by task and rollout; `ran`: what it took where it was run;
    `keys`: the state it was made in and the call itself, None where nobody else could have had its answer.
    """

    mode: str
    seconds: float = 0.0
    peak: int = 0
    integral: float = 0.0
    samples: int = 0
    solved: int = 0
    calls: int = 0
    run: int = 0
    hits: int = 0
    ends: dict[str, float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    stats: dict[str, Any] = field(default_factory=dict)
    waited: dict[str, list[list[float]]] = field(default_factory=dict)
    ran: dict[str, list[list[float]]] = field(default_factory=dict)
    keys: dict[str, list[list[Hashable]]] = field(default_factory=dict, repr=False)
    played: dict[str, list[Played]] = field(default_factory=dict, repr=False)
    seen: Run | None = field(default=None, repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; without the results, and without the times of single calls."""
        left_out = ("played", "waited", "ran", "keys", "seen")
        return {name: value for name, value in vars(self).items() if name not in left_out}

    def latencies(self) -> list[float]:
        """The seconds every call was waited for, sorted."""
        return sorted(t for task in self.waited.values() for row in task for t in row)


def play_batch(
    batch: Batch,
    mode: Mode,
    *,
    options: dict[str, Any] | None = None,
    watch: bool = False,
    on_call: Callable[[ToolResult], None] | None = None,
    jobs: int | None = None,
) -> Outcome:
    """Play the batch, `jobs` rollouts at a time (None: all at once).

    `options` go to the executor, unless the mode has them itself. With `watch`, the outcome has what a page shows
    (`seen`).
    """
    watched = Watch(rest=9)
    more = {"events": watched.events} if watch else {}
    executor = mode.executor(max(len(lot.scripts) for lot in batch.lots), **(options or {}), **more)
    outcome = Outcome(mode.name)
    meter = watched.meter
    with ExitStack() as stack:
        stack.callback(executor.close)
        groups = [stack.enter_context(_group(executor, lot)) for lot in batch.lots]
        begin = time.perf_counter()

        def start() -> None:
            nonlocal begin
            meter.__enter__()
            stack.callback(meter.stop)
            begin = time.perf_counter()

        # A rollout's workspace goes when the rollout has ended, as a trainer lets go of it.
        jobs = jobs or batch.rollouts
        if mode.warm:
            play(groups, jobs=jobs, on_call=on_call, before=start)
        else:
            start()
            play(groups, jobs=jobs, on_call=on_call)
        outcome.seconds = time.perf_counter() - begin
        meter.stop()
        executor.auditor.drain(_AUDITS)
        if watch:
            outcome.seen = Run.of(batch.name, outcome.seconds, groups, executor.stats, watched, mode.name)
    outcome.peak, outcome.integral, outcome.samples = meter.peak, meter.integral, meter.samples
    _tell(outcome, groups, executor.stats)
    time.sleep(_SETTLE)
    return outcome


def _group(executor: Executor, lot: Lot) -> Group:
    scripts = dict(zip(lot.names, lot.scripts, strict=True))
    return Group(
        executor,
        lot.task,
        lot.prepare,
        scripts,
        timeout=lot.timeout,
        verifier=lot.verifier,
        thinking=lot.thinking,
    )


def _tell(outcome: Outcome, groups: Sequence[Group], stats: Stats) -> None:
    for group in groups:
        outcome.played[group.name] = group.played
        outcome.ends[group.name] = max(one.seconds for one in group.played)
        outcome.waited[group.name] = [one.waited for one in group.played]
        outcome.ran[group.name] = [[result.duration for result in one.results] for one in group.played]
        outcome.keys[group.name] = [[_key(step) for step in trail] for trail in group.trails()]
        outcome.failures += [f"{one.name}: {one.failure}" for one in group.played if one.failure]
        outcome.solved += sum(one.reward == 1.0 for one in group.played)
    outcome.calls, outcome.run, outcome.hits = stats.calls, stats.misses, stats.hits + stats.waits
    outcome.stats = stats.as_dict()


def _key(step: Step) -> Hashable:
    if step.aside or step.private:
        return None
    state = step.source.state
    return (state.loose if state is not None else step.source.number, step.edge)
