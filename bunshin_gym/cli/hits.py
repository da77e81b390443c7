"""bench hits: what an answer from the tree costs, in process, in a tree of many nodes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence

import bunshin_gym
from bunshin_gym.bench.hits import HitTimes, measure_hits
from bunshin_gym.bench.scale import machine
from bunshin_gym.cli.terminal import Progress, table
from bunshin_gym.cli.values import count

__all__ = ["arguments", "lines", "main"]


def arguments(parser: argparse.ArgumentParser) -> None:
    how = parser.add_argument_group("hits")
    how.add_argument("--nodes", type=count, default=100_000, metavar="N", help="of the tree (100000; quick: 10000)")


def main(args: argparse.Namespace) -> int:
    nodes = min(args.nodes, 10_000) if args.quick else args.nodes
    with Progress(quiet=args.json) as progress:
        rows = measure_hits(nodes, on_part=progress.start, on_step=progress.advance)
    if args.json:
        about = {"machine": machine(), "version": bunshin_gym.__version__}
        print(json.dumps({**about, "rows": [row.as_dict() for row in rows]}, indent=1))
    else:
        print("\n".join(lines(rows)))
        print(f"\nmeasured on {machine()}; bunshin_gym {bunshin_gym.__version__}")
    return 0


def lines(rows: Sequence[HitTimes]) -> Iterable[str]:
    """The figures as a table."""
    header = ("a hit, found", "nodes", "hits", "median", "90 %", "99 %", "99.9 %", "longest")
    yield table(header, [_row(row) for row in rows])
    yield f"a call that is run: {rows[0].run_us:.0f} µs (median, dummy engine)"


def _row(row: HitTimes) -> tuple[str, ...]:
    times = (row.median_us, row.p90_us, row.p99_us, row.p999_us, row.max_us)
    found = "at another history of the state" if row.by_state else "at its own history"
    return (found, f"{row.nodes:,}", f"{row.hits:,}", *(f"{us:,.0f} µs" for us in times))
