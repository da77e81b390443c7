"""bench: measure what a fork costs, and what groups of rollouts gain."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import replace

from bunshin_gym.bench.desktop import QUICK_DESKTOP, DesktopFigures, DesktopSizes, measure_desktop
from bunshin_gym.bench.digest import measure_digests
from bunshin_gym.bench.fork import QUICK, Figures, Sizes, measure
from bunshin_gym.cli import hits, laws, looks, predict, rollout
from bunshin_gym.cli.terminal import Progress, megabytes, table
from bunshin_gym.cli.values import count

__all__ = ["arguments", "main"]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        choices=["fork", "desktop", "digest", "hits", "looks", "rollout", "predict", "laws"],
        help="fork: one workspace, forked in every way, beside starting it anew; desktop: the same for a live desktop; "
        "digest: what asking for the state costs; "
        "hits: what an answer from the tree costs; "
        "looks: what recorded calls look at beside the state; "
        "rollout: groups of rollouts beside cold starts and a warm pool; "
        "predict: how often the calls that recorded rollouts made are foretold; "
        "laws: random programs with a cache against the same without one",
    )
    parser.add_argument("--engine", default="native", help="the engine (native)")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--alive", type=count, metavar="N", help="forks alive at once (500)")
    parser.add_argument("--churn", type=count, metavar="N", help="forks one after another (5000)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    rollout.arguments(parser)
    predict.arguments(parser)
    hits.arguments(parser)
    laws.arguments(parser)
    looks.arguments(parser)


def main(args: argparse.Namespace) -> int:
    own = {"fork": fork, "desktop": desktop, "digest": digest}
    mains = own | {"hits": hits.main, "looks": looks.main, "rollout": rollout.main, "predict": predict.main}
    mains |= {"laws": laws.main}
    return mains[args.what](args)


_ms = "{:.1f} ms".format


def _fork_of_one(f: Figures | DesktopFigures) -> tuple[str, str, str]:
    beside = f"1/{1 / f.fork_to_start:.0f} of a start; 90 % within {_ms(f.fork_p90_ms)}"
    return "fork of one child", _ms(f.fork_ms), beside


def desktop(args: argparse.Namespace) -> int:
    """A live desktop."""
    sizes = QUICK_DESKTOP if args.quick else DesktopSizes()
    with Progress(quiet=args.json) as progress:
        figures = measure_desktop(args.engine, sizes, on_part=progress.start, on_step=progress.advance)
    print(json.dumps(figures.as_dict(), indent=2) if args.json else "\n".join(desktop_lines(figures)))
    return 0 if figures.same == figures.forks else 1


def desktop_lines(f: DesktopFigures) -> Iterable[str]:
    """The figures as a table."""
    yield f"the desktop: {', '.join(f.programs)}; {f.processes} processes, {f.threads} threads\n"
    rows = [
        ("starting it anew", _ms(f.start_ms), ""),
        ("first snapshot", _ms(f.seal_ms), f"holds {megabytes(f.seal_bytes)} MB"),
        _fork_of_one(f),
        ("shows the same picture", f"{f.same} of {f.forks}", "to the pixel, at once"),
        (f"batch of {f.batch}, each", _ms(f.batch_ms_each), ""),
        ("second snapshot", _ms(f.again_ms), f"copies {megabytes(f.again_copied)} MB"),
        ("private memory, idle child", f"{megabytes(f.private)} MB", ""),
        ("screenshot", _ms(f.screenshot_ms), ""),
        ("an action, settled", _ms(f.action_ms), ""),
    ]
    yield table(("", "measured", ""), rows, left=(0, 2))
    yield "\nstages of the second snapshot, ms: " + ", ".join(f"{name} {time:.2f}" for name, time in f.stages.items())


def digest(args: argparse.Namespace) -> int:
    """State digests."""
    files = (0, 10, 1_000) if args.quick else (0, 10, 1_000, 10_000)
    with Progress(quiet=args.json) as progress:
        rows = measure_digests(args.engine, files=files, on_part=progress.start, on_step=progress.advance)
    if args.json:
        print(json.dumps([row.as_dict() for row in rows], indent=2))
        return 0
    times = [
        (row.what, *(f"{ms:.2f} ms" for ms in (row.first_ms, row.again_ms, row.sealed_ms, row.fork_ms, row.call_ms)))
        for row in rows
    ]
    heads = ("a digest with", "first", "again", "after a snapshot", "first in a fork", "an empty call")
    print(table(heads, times, left=(0,)))
    return 0


def fork(args: argparse.Namespace) -> int:
    """One workspace, in every way."""
    sizes = QUICK if args.quick else Sizes()
    sizes = replace(sizes, alive=args.alive or sizes.alive, churn=args.churn or sizes.churn)
    with Progress(quiet=args.json) as progress:
        figures = measure(args.engine, sizes, on_part=progress.start, on_step=progress.advance)
    if args.json:
        print(json.dumps(figures.as_dict(), indent=2))
    else:
        print("\n".join(lines(figures)))
    answered = figures.batch_answered == figures.batch and figures.alive_answered == figures.alive
    return 0 if answered else 1


def lines(f: Figures) -> Iterable[str]:
    """The figures as a table, with the stages of both snapshots below it."""
    heap = "numpy and 50 MB of random bytes" if f.numpy else "50 MB of random bytes (no numpy that its python can load)"
    yield f"the workspace: a shell, a python with {heap}, an HTTP server, a sleep\n"
    rows = [
        ("starting it anew", _ms(f.start_ms), ""),
        ("first snapshot", _ms(f.snapshot_ms), f"holds {megabytes(f.snapshot_bytes)} MB"),
        _fork_of_one(f),
        (f"batch of {f.batch}, each", _ms(f.batch_ms_each), f"{f.batch_answered} of {f.batch} answer"),
        (
            "second snapshot",
            _ms(f.again_ms),
            f"copies {megabytes(f.again_copied)} MB, refers to {megabytes(f.again_shared)} MB",
        ),
        ("private memory, idle child", f"{megabytes(f.idle_private)} MB", ""),
        (
            f"memory of {f.batch} and the source",
            f"{megabytes(f.batch_bytes)} MB",
            f"{f.batch_to_one:.1f} times the {megabytes(f.one_bytes)} MB of one",
        ),
        (f"{f.alive} forks at once", f"{f.alive_seconds:.1f} s", f"{f.alive_answered} of {f.alive} answer"),
        (
            f"{f.churn} forks in turn, each",
            _ms(f.churn_ms_last),
            f"{_ms(f.churn_ms_first)} at first; grown by "
            + ", ".join(f"{megabytes(n)} MB" if name == "bytes" else f"{n} {name}" for name, n in f.growth.items()),
        ),
        ("an empty shell call", f"{f.call_ms:.2f} ms", f"bash alone: {f.bash_ms:.2f} ms"),
    ]
    if "missing" in f.criu:
        rows.append(("unmodified CRIU under runc", "-", f.criu["missing"]))
    else:
        rows.append(
            (
                f"CRIU {f.criu['version']} under runc",
                _ms(f.criu["dump_ms"]),
                f"to dump, {_ms(f.criu['restore_ms'])} to restore; an image of {megabytes(f.criu['image_bytes'])} MB",
            )
        )
    yield table(("", "measured", ""), rows, left=(0, 2))
    if f.trees:
        yield ""
        yield table(
            ("larger trees", "fork", "of a start", "snapshot", "the first", "processes", "threads"),
            [
                (
                    row.name,
                    _ms(row.fork_ms),
                    f"1/{1 / row.fork_to_start:.0f}",
                    _ms(row.again_ms),
                    _ms(row.first_ms),
                    str(row.processes),
                    str(row.threads),
                )
                for row in f.trees
            ],
            left=(0,),
        )
    if f.machine:
        yield f"\nmeasured on {f.machine}"
    for title, stages in (("first snapshot", f.snapshot_stages), ("second snapshot", f.again_stages)):
        if stages:
            yield f"\nstages of the {title}, ms: " + ", ".join(f"{name} {time:.2f}" for name, time in stages.items())
