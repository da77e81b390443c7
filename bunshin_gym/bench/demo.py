"""The main job on the shipped tasks: groups of scripted rollouts, three times over in one run.

*cold* gives every rollout a fresh workspace when it begins; *warm pool* has them all ready before the clock starts and
is otherwise the same: no cache, nothing shared. *bunshin* forks one prepared workspace a task and answers calls from
the tree. The same scripts, the same threads, the same thinking time before each call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bunshin_gym.executor import Executor
from bunshin_gym.group import Group, Played, play, repeat
from bunshin_gym.looks import agree
from bunshin_gym.report import Run, Watch
from bunshin_gym.scripted import scripts_of
from bunshin_gym.task import Task
from bunshin_gym.tools import ToolResult
from bunshin_gym.workspace import WorkspaceSpec

__all__ = ["MODES", "Outcome", "Report", "measure"]


@dataclass(frozen=True)
class Mode:
    """One way to do the job."""

    name: str
    cache: bool
    share: bool
    warm: bool


MODES = (
    Mode("cold", cache=False, share=False, warm=False),
    Mode("warm pool", cache=False, share=False, warm=True),
    Mode("bunshin", cache=True, share=True, warm=False),
)


@dataclass
class Outcome:
    """What one mode took and gave. Bytes; seconds; byte-seconds."""

    mode: str
    rollouts: int
    calls: int
    run: int
    hits: int
    prepared: int
    forks: int
    solved: int
    peak: int
    integral: float
    seconds: float
    samples: int
    failures: list[str] = field(default_factory=list)
    stats: dict[str, Any] = field(default_factory=dict)
    seen: Run | None = field(default=None, repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {name: value for name, value in vars(self).items() if name != "seen"}


@dataclass
class Report:
    """All modes, and in how many calls the last gave the answers of the first (but for times and the like)."""

    outcomes: list[Outcome]
    answers: int
    answers_equal: int
    different: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return vars(self) | {"outcomes": [outcome.as_dict() for outcome in self.outcomes]}

    @property
    def seen(self) -> Run | None:
        """What a page shows: the last mode, beside the others. None where nobody watched."""
        last = self.outcomes[-1].seen
        return last.beside(outcome.seen for outcome in reversed(self.outcomes[:-1])) if last is not None else None


def measure(
    tasks: Sequence[Task],
    *,
    rollouts: int = 8,
    think: float = 0.1,
    engine: str = "native",
    modes: Sequence[Mode] = MODES,
    watch: bool = False,
    on_mode: Callable[[str, int], None] = lambda name, calls: None,
    on_call: Callable[[ToolResult], None] | None = None,
) -> Report:
    """Play `rollouts` rollouts of every task in each mode. `think`: seconds before each call.

    With `watch`, the report has what a page shows (`seen`). `on_mode(name, calls)` is told when a mode begins,
    `on_call` when a call has been answered.
    """
    outcomes: list[Outcome] = []
    first: list[Played] = []
    last: list[Played] = []
    for mode in modes:
        calls = sum(len(script) for task in tasks for script in repeat(scripts_of(task), rollouts).values())
        on_mode(mode.name, calls)
        outcome, last = _play(mode, tasks, rollouts, think, engine, watch, on_call)
        outcomes.append(outcome)
        first = first or last
    report = Report(outcomes, 0, 0)
    for a, b in zip(first, last, strict=True):
        for expected, got in zip(a.results, b.results, strict=False):
            report.answers += 1
            if agree(expected, got):
                report.answers_equal += 1
            else:
                report.different.append(f"{b.name}: {expected.output[-200:]!r} is now {got.output[-200:]!r}")
    return report


def _play(
    mode: Mode,
    tasks: Sequence[Task],
    rollouts: int,
    think: float,
    engine: str,
    watch: bool,
    on_call: Callable[[ToolResult], None] | None,
) -> tuple[Outcome, list[Played]]:
    watched = Watch()
    meter = watched.meter
    events = watched.events if watch else None
    executor = Executor(cache=mode.cache, share=mode.share, group=rollouts, events=events)
    spec = WorkspaceSpec(engine=engine, separate_stderr=False)
    with ExitStack() as stack:
        stack.callback(executor.close)
        groups = [
            stack.enter_context(
                Group(
                    executor,
                    task.name,
                    partial(task.prepare, spec),
                    repeat(scripts_of(task), rollouts),
                    timeout=task.call_timeout,
                    verifier=task.verifier,
                )
            )
            for task in tasks
        ]
        start = time.perf_counter()
        if mode.warm:

            def ready() -> None:
                nonlocal start
                start = time.perf_counter()
                stack.enter_context(meter)

            play(groups, think=think, on_call=on_call, before=ready)
        else:
            stack.enter_context(meter)
            play(groups, think=think, on_call=on_call)
        seconds = time.perf_counter() - start
        meter.stop()
        seen = Run.of(f"{len(tasks)} tasks", seconds, groups, executor.stats, watched, mode.name) if watch else None
    stats = executor.stats
    played = [one for group in groups for one in group.played]
    outcome = Outcome(
        mode=mode.name,
        rollouts=len(played),
        calls=stats.calls,
        run=stats.misses,
        hits=stats.hits + stats.waits,
        prepared=stats.prepared,
        forks=stats.forks,
        solved=sum(one.reward == 1.0 for one in played),
        peak=meter.peak,
        integral=meter.integral,
        seconds=seconds,
        samples=meter.samples,
        failures=[f"{one.name}: {one.failure}" for one in played if one.failure],
        stats=stats.as_dict(),
        seen=seen,
    )
    return outcome, played
