"""Hits, audited: batches are played again and again, and each call answered from the tree is run again and compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from bunshin_gym.bench.rollout.modes import Mode
from bunshin_gym.bench.rollout.playing import play_batch
from bunshin_gym.bench.rollout.workload import Batch
from bunshin_gym.tools import ToolResult

__all__ = ["AUDITED", "Audits", "audit"]

AUDITED = Mode("audited", {"audit": 1.0})


@dataclass
class Audits:
    """Counts of calls. `audited` of the hits were run again; `false` of those gave something else than the tree said.

    `could_not`: of the hits, those that could not be run again. `calls_false` says which calls gave false answers.
    """

    wanted: int
    calls: int = 0
    hits: int = 0
    by_state: int = 0
    audited: int = 0
    could_not: int = 0
    false: int = 0
    rounds: int = 0
    calls_false: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return vars(self) | {"calls_false": dict(self.calls_false)}

    def take(self, stats: dict[str, Any]) -> None:
        """Add what an executor counted."""
        self.calls += stats["calls"]
        self.hits += stats["hits"] + stats["waits"]
        self.by_state += stats.get("hits_by_state", 0)
        self.audited += stats.get("audits", 0)
        self.could_not += stats.get("audits_failed", 0) + stats.get("audits_skipped", 0)
        self.false += stats.get("false_hits", 0)
        self.calls_false.update(stats.get("false_hit_calls", ()))


def audit(
    batches: Callable[[int], Sequence[Batch]],
    wanted: int,
    *,
    on_part: Callable[[str, int], None] = lambda name, total: None,
    on_call: Callable[[ToolResult], None] | None = None,
) -> Audits:
    """Play batches without thinking until `wanted` hits have been audited. `batches(n)` are those of the nth round.

    Ends early where a whole round adds no audit: then there is nothing that recurs.
    """
    found = Audits(wanted)
    for batch in _rounds(batches, found):
        on_part(f"audits {found.audited} of {wanted}: {batch.name}", batch.calls)
        outcome = play_batch(batch, AUDITED, on_call=on_call)
        found.take(outcome.stats)
        found.failures += outcome.failures
        if found.audited >= wanted:
            break
    return found


def _rounds(batches: Callable[[int], Sequence[Batch]], found: Audits) -> Iterator[Batch]:
    for number in count():
        before = found.audited
        found.rounds = number + 1
        for batch in batches(number):
            yield batch.faster(0.0)
        if found.audited == before:
            return
