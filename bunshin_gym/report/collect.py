"""What is in a report: runs, and of each its tasks with their call trees, its modes, and a timeline.

A *run* is what was measured in one piece: the rollouts of one task, or of several on one executor. It was played in one
or more *modes*: ours, and perhaps baselines that only tell what they took. All is plain data; `as_dict` gives JSON.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

import bunshin_gym
from bunshin_gym.bench.meter import Meter
from bunshin_gym.branch import Branch
from bunshin_gym.events import Event, Events
from bunshin_gym.group import Group
from bunshin_gym.stats import Stats

__all__ = ["FORMAT", "Mode", "Report", "Run", "TaskTree", "Watch"]

FORMAT = "bunshin report 1"
_SPANS = 60_000  # of a timeline at most: of more, those that took longest
# Moves of a rollout: what of their time is of no stage inside them is the cache's own.
_MOVES = ("open", "call", "judge")


class Watch:
    """What has to look on while something is played, if there is to be a report of it: a context around the play."""

    def __init__(self, rest: float = 4) -> None:
        self.events = Events()
        self.meter = Meter(rest=rest)

    def __enter__(self) -> Self:
        self.meter.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.meter.stop()


@dataclass
class Mode:
    """What one way to play a run took. Seconds, bytes, byte-seconds.

    `phases`: seconds by what they went into, summed over rollouts, and "saved": what the calls that were answered
    without being run had taken. `background`: the same of what no rollout waited for. `memory`: seconds since the
    start, PSS and page stores.
    """

    name: str
    seconds: float = 0.0
    solved: int | None = None
    stats: dict[str, Any] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)
    background: dict[str, float] = field(default_factory=dict)
    memory: list[tuple[float, int, int]] = field(default_factory=list)
    peak: int | None = None
    integral: float | None = None

    @classmethod
    def of(cls, name: str, seconds: float, groups: Iterable[Group], stats: Stats, watch: Watch | None) -> Mode:
        """What was measured of it. `groups` have been played, and may be closed."""
        played = [one for group in groups for one in group.played]
        judged = [one for one in played if one.reward is not None]
        mode = cls(name, seconds, sum(one.reward == 1.0 for one in judged) if judged else None, stats.as_dict())
        if watch is not None:
            mode.phases = _phases(watch.events) | {"saved": stats.saved_seconds}
            mode.background = {kind: total.seconds for kind, total in watch.events.background.items()}
            meter = watch.meter
            mode.memory, mode.peak, mode.integral = list(meter.points), meter.peak, meter.integral
        return mode


@dataclass
class TaskTree:
    """The rollouts of one task: their call tree, and of each its name, its reward (None: nobody judged) and so on."""

    name: str
    tree: Branch
    rollouts: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, group: Group) -> TaskTree:
        """Of a group that has been played. While its executor is open."""
        numbers = group.numbers()
        rollouts = [
            {
                "name": one.name,
                "number": numbers.get(index, 0),
                "reward": one.reward,
                "failure": one.failure,
                "seconds": one.seconds,
                "calls": len(one.results),
            }
            for index, one in enumerate(group.played)
        ]
        return cls(group.name, group.tree(), rollouts)


@dataclass
class Run:
    """One run: `modes[0]` is ours. `lanes`: what each rollout did when (see `lanes_of`)."""

    name: str
    about: str = ""
    tasks: list[TaskTree] = field(default_factory=list)
    modes: list[Mode] = field(default_factory=list)
    lanes: list[dict[str, Any]] = field(default_factory=list)
    left_out: int = 0

    @classmethod
    def of(
        cls, name: str, seconds: float, groups: Sequence[Group], stats: Stats, watch: Watch, mode: str = "bunshin"
    ) -> Run:
        """Of groups that have just been played, in that mode. While their executor is open."""
        run = cls(name, tasks=[TaskTree.of(group) for group in groups])
        run.modes.append(Mode.of(mode, seconds, groups, stats, watch))
        run.take(watch.events)
        return run

    def beside(self, others: Iterable[Run | None]) -> Run:
        """The same with the modes of other runs of it, for comparison."""
        return replace(self, modes=[*self.modes, *(mode for run in others if run is not None for mode in run.modes)])

    def take(self, events: Events) -> None:
        """Note on the trees where snapshots were made and forked, and draw the timeline."""
        branches = {number: one for task in self.tasks for one in task.tree for number in (*one.steps, *one.nodes)}
        for event in events:
            branch = branches.get(event.at)
            if branch is not None:
                branch.forks += event.kind == "fork"
                branch.snapshots += event.kind == "snapshot"
                branch.begun += event.kind == "draft"
        self.lanes, self.left_out = lanes_of(self.tasks, events)

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "about": self.about,
            "tasks": [{"name": t.name, "rollouts": t.rollouts, **t.tree.as_dict()} for t in self.tasks],
            "modes": [vars(mode) for mode in self.modes],
            "lanes": self.lanes,
            "left_out": self.left_out,
        }


@dataclass
class Report:
    """What was done, and what is known of it. `facts`: lines about where and how."""

    title: str
    facts: list[str] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    made: float = field(default_factory=time.time)

    def as_dict(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": bunshin_gym.__version__,
            "title": self.title,
            "made": time.strftime("%Y-%m-%d %H:%M", time.localtime(self.made)),
            "facts": self.facts,
            "runs": [run.as_dict() for run in self.runs],
        }


def lanes_of(tasks: Sequence[TaskTree], events: Events) -> tuple[list[dict[str, Any]], int]:
    """A lane for each rollout, in order, and for each thread in the background; and how many events were left out.

    A lane has `spans`: kind, microseconds since the recorder was made, microseconds it took, the place of the call in
    its tree (-1: none), and for a call how it was answered. Those that lie in another one come after it.
    """
    places = {
        number: place for task in tasks for place, one in enumerate(task.tree) for number in (*one.steps, *one.nodes)
    }
    lanes: dict[object, dict[str, Any]] = {}
    for index, task in enumerate(tasks):
        for rollout in task.rollouts:
            lanes[rollout["number"]] = {"name": rollout["name"], "task": index, "spans": []}
    every = list(events)
    kept = every
    if len(every) > _SPANS:
        kept = sorted(every, key=lambda event: event.seconds)[-_SPANS:]
    for event in sorted(kept, key=lambda event: (event.start, -event.seconds)):
        key: object = event.rollout or event.thread
        lane = lanes.get(key)
        if lane is None:
            if event.rollout:
                continue  # of a rollout of which nobody asked
            lane = lanes[key] = {"name": event.thread, "task": -1, "spans": []}
        lane["spans"].append(_span(event, events.began, places))
    return list(lanes.values()), events.dropped + len(every) - len(kept)


def _span(event: Event, began: float, places: dict[int, int]) -> list[Any]:
    start, took = round((event.start - began) * 1e6), round(event.seconds * 1e6)
    return [event.kind, start, took, places.get(event.at, -1), *([event.note] if event.note else [])]


def _phases(events: Events) -> dict[str, float]:
    phases: dict[str, float] = {}
    for kind, total in events.totals.items():
        name = "cache" if kind in _MOVES else kind
        phases[name] = phases.get(name, 0.0) + total.seconds
    return phases
