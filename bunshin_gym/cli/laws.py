"""bench laws: what rollouts see with a cache against what they see without one, by random programs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable

import bunshin_gym
from bunshin_gym.bench.laws import Laws, check, programs
from bunshin_gym.bench.scale import machine
from bunshin_gym.cli.terminal import Progress, table
from bunshin_gym.cli.values import count

__all__ = ["arguments", "lines", "main"]


def arguments(parser: argparse.ArgumentParser) -> None:
    how = parser.add_argument_group("laws")
    how.add_argument("--programs", type=count, default=200, metavar="N", help="random programs (200; quick: 20)")


def main(args: argparse.Namespace) -> int:
    count = min(args.programs, 20) if args.quick else args.programs
    with Progress(quiet=args.json) as progress:
        progress.start("random programs", count)
        found = check(programs(count, args.seed), args.engine, on_program=progress.advance)
    if args.json:
        about = {"machine": machine(), "version": bunshin_gym.__version__, "engine": args.engine, "seed": args.seed}
        print(json.dumps(about | found.as_dict(), indent=1))
    else:
        print("\n".join(lines(found)))
        print(f"\nmeasured on {machine()}; bunshin_gym {bunshin_gym.__version__}; seed {args.seed}")
    return 1 if found.differences or found.false else 0


def lines(found: Laws) -> Iterable[str]:
    """The counts as a table, and each difference with the calls that lead to it."""
    rows = [
        ("random programs", found.programs, "each without a cache, and in three ways with one"),
        ("calls with a cache", found.calls, ""),
        ("answered from it", found.hits, f"{found.by_state} at another history of the state"),
        ("of these audited", found.audited, ""),
        ("false", found.false, "to reach: 0"),
        ("calls replayed", found.replays, f"{found.mismatches} gave something else, and were not shared any more"),
        ("programs that saw something else", len(found.differences), "to reach: 0"),
    ]
    yield table(("laws", "", ""), rows, left=(0, 2))
    for call, times in found.calls_false.most_common():
        yield f"false: {call} ({times} times)"
    yield from map(str, found.differences[:20])
