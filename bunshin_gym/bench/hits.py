"""What an answer from the tree costs, in process: the executor alone, in a tree of many nodes.

The tree grows by real calls on the dummy engine, which costs little a call: rollouts of a few hundred calls each, every
one of which leads to a state of its own. Then rollouts go the same ways again, in an order drawn at random, with calls
that are new objects, as they come from a policy. Only the executor's `run` is timed; the garbage collector runs as it
does in any program.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from bunshin_gym.bench.timing import Part, Step
from bunshin_gym.executor import Executor
from bunshin_gym.tools import ToolCall
from bunshin_gym.tree import Tree
from bunshin_gym.workspace import Workspace, WorkspaceSpec

__all__ = ["HitTimes", "measure_hits"]

_DEPTH = 250
_MARK = "echo mark > mark"  # written again, it is of another time: another history of the same state


@dataclass(frozen=True)
class HitTimes:
    """Microseconds of `hits` answers in a tree of `nodes`. `by_state`: found at another history of the rollout's state,
    or else at its own. `run_us`: what a call costs that is run (the dummy engine's, so next to nothing but our own)."""

    by_state: bool
    nodes: int
    hits: int
    median_us: float
    p90_us: float
    p99_us: float
    p999_us: float
    max_us: float
    run_us: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure_hits(nodes: int, *, hits: int = 20_000, on_part: Part, on_step: Step) -> list[HitTimes]:
    """Hits in a tree of at least `nodes` nodes: found at the rollout's own history, and by its state."""
    executor = Executor(audit=0.0, tree=Tree(max_bytes=1 << 40))
    try:
        ways = -(-nodes // _DEPTH)
        grown: list[float] = []
        on_part(f"a tree of {nodes:,} nodes", ways)
        for way in range(ways):
            _go(executor, way, grown.append)
            on_step()
        run_us = statistics.median(grown) * 1e6
        rounds = -(-hits // _DEPTH)
        on_part(f"{hits:,} hits in two ways", 2 * rounds)
        return [_again(executor, ways, rounds, run_us, by_state=which, on_step=on_step) for which in (False, True)]
    finally:
        executor.close()


def _again(executor: Executor, ways: int, rounds: int, run_us: float, *, by_state: bool, on_step: Step) -> HitTimes:
    stats, nodes = executor.stats, executor.tree.size[0]
    hits, others = stats.hits, stats.hits_by_state
    times: list[float] = []
    rng = random.Random(rounds)
    for turn in range(rounds):
        _go(executor, rng.randrange(ways), times.append, detour=f"{_MARK}; true {turn}" if by_state else "")
        on_step()
    if (stats.hits - hits, stats.hits_by_state - others) != (len(times), len(times) if by_state else 0):
        raise RuntimeError(
            f"of {len(times)} calls {stats.hits - hits} were answered, not all, or not as they were to be"
        )
    times.sort()
    median, p90, p99, p999 = (times[int(share * len(times))] * 1e6 for share in (0.5, 0.9, 0.99, 0.999))
    return HitTimes(by_state, nodes, len(times), median, p90, p99, p999, times[-1] * 1e6, run_us)


def _prepared() -> Workspace:
    workspace = Workspace(WorkspaceSpec(engine="dummy"))
    workspace.run(_MARK)
    return workspace


def _go(executor: Executor, way: int, note: Callable[[float], None], *, detour: str = "") -> None:
    """One rollout along its way; `note` is told the seconds of each call."""
    rollout = executor.open("hits", _prepared)
    try:
        if detour:
            executor.run(rollout, ToolCall("shell", {"command": detour}), 10.0)
        for number in range(_DEPTH):
            call = ToolCall("shell", {"command": f"cd / && WAY={way} STEP={number} && echo step {number} of {way}"})
            begin = time.perf_counter()
            executor.run(rollout, call, 10.0)
            note(time.perf_counter() - begin)
    finally:
        rollout.close()
