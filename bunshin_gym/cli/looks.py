"""bench looks: what the calls of recorded rollouts look at beside the state, counted."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Sequence

import bunshin_gym
from bunshin_gym.bench.looks import VERDICTS, Looked, count, look_at, sample
from bunshin_gym.cli.predict import recorded
from bunshin_gym.cli.terminal import table

__all__ = ["arguments", "lines", "main"]


def arguments(parser: argparse.ArgumentParser) -> None:
    how = parser.add_argument_group("looks (of --trajectories DIR, and --task)")
    how.add_argument(
        "--sample", type=int, default=0, metavar="N", help="show N calls, drawn by --seed, to judge by eye"
    )


def main(args: argparse.Namespace) -> int:
    calls = look_at(recorded(args))
    if args.json:
        found = count(calls)
        rows = [
            {"verdict": verdict, "reason": reason, "family": family, "calls": number}
            for (verdict, reason, family), number in sorted(found.items())
        ]
        print(json.dumps({"version": bunshin_gym.__version__, "calls": len(calls), "rows": rows}, indent=1))
        return 0
    print("\n".join(lines(calls)))
    for number, call in enumerate(sample(calls, args.sample, args.seed), 1):
        print(f"\n{number}. [{call.verdict}{': ' + call.reason if call.reason else ''}] {call.family}\n{call.command}")
    return 0


def lines(calls: Sequence[Looked]) -> Iterable[str]:
    """The counts, by family; and which programs nobody has looked into."""
    found = count(calls)
    families = sorted({family for _, _, family in found})
    rows = sorted({(verdict, reason) for verdict, reason, _ in found}, key=lambda row: (VERDICTS.index(row[0]), row[1]))
    yield table(
        ("verdict", "because of", *families, "all", "of all"),
        [
            _row(verdict, reason, [found[verdict, reason, family] for family in families], len(calls))
            for verdict, reason in rows
        ],
        left=(0, 1),
    )
    unread = Counter(call.look.unread for call in calls if call.verdict == VERDICTS[1])
    yield f"\n{len(calls):,} calls. On trust, by program: " + ", ".join(f"{n} {k}" for n, k in unread.most_common(12))


def _row(verdict: str, reason: str, numbers: list[int], calls: int) -> tuple[object, ...]:
    return (verdict, reason, *numbers, sum(numbers), f"{100 * sum(numbers) / calls:.1f} %")
