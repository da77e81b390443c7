"""--metrics: the statistics of a run for Prometheus, while it goes on."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bunshin_gym import metrics
from bunshin_gym.errors import TaskError
from bunshin_gym.stats import Stats

__all__ = ["Told", "option", "served"]

Told = Callable[[str, Stats], None]


def option(how: argparse._ArgumentGroup) -> None:
    how.add_argument(
        "--metrics",
        metavar="[ADDRESS:]PORT",
        help="serve the statistics for Prometheus as the run goes on; on 127.0.0.1 unless an address is given",
    )


@contextmanager
def served(where: str | None) -> Iterator[Told]:
    """Serve what is told by the function this gives: a task's name and its statistics. Nothing where `where` is None.

    Raises TaskError where it is no port, and as `metrics.serve`.
    """
    if where is None:
        yield lambda name, stats: None
        return
    address, _, port = where.rpartition(":")
    address = address.strip("[]") or "127.0.0.1"
    if not port.isdigit():
        raise TaskError(f"--metrics needs a port, or an address and a port, not {where!r}")
    with metrics.serve(port=int(port), address=address) as server:
        print(f"metrics: http://{address}:{server.port}/metrics", file=sys.stderr, flush=True)
        yield lambda name, stats: server.collector.watch(stats, task=name)
