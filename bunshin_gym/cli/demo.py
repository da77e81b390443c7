"""demo: the main job on the shipped tasks, beside a cold and a warm-pool baseline in the same run."""

from __future__ import annotations

import argparse
import json
import sys

from bunshin_gym.bench.demo import Outcome, Report, measure
from bunshin_gym.cli import reports
from bunshin_gym.cli.terminal import Progress, megabytes, table
from bunshin_gym.cli.values import count, duration
from bunshin_gym.task import Taskset

__all__ = ["arguments", "main"]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rollouts", type=count, default=8, metavar="N", help="rollouts of each task (8)")
    parser.add_argument("--think", type=duration, default=0.1, metavar="S", help="seconds before each call (0.1)")
    parser.add_argument("--taskset", default="basic", metavar="NAME", help="a taskset, or one task of it (basic)")
    parser.add_argument("--engine", default="native", help="the engine (native)")
    reports.option(parser)
    parser.add_argument("--json", action="store_true", help="print everything measured as JSON")


def main(args: argparse.Namespace) -> int:
    reports.check(args.report)
    tasks = Taskset.load(args.taskset)
    with Progress(quiet=args.json) as progress:
        report = measure(
            tasks,
            rollouts=args.rollouts,
            think=args.think,
            engine=args.engine,
            watch=args.report is not None,
            on_mode=progress.start,
            on_call=progress.advance,
        )
    if args.json:
        print(json.dumps(report.as_dict(), indent=2))
    else:
        print(f"{len(tasks)} tasks, {args.rollouts} rollouts each, all at once, {args.think:g} s of thinking a call\n")
        show(report)
    reports.save(args, f"demo: {args.taskset}", [report.seen], f"{args.rollouts} rollouts a task", args.engine)
    failures = [failure for outcome in report.outcomes for failure in outcome.failures]
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    return 1 if failures or report.answers_equal < report.answers else 0


def show(report: Report) -> None:
    """The table, and what it comes to."""
    header = ("", "rollouts", "calls", "run", "hits", "forks", "peak MB", "MB x s", "wall s", "solved")
    print(table(header, [row(outcome) for outcome in report.outcomes]))
    ours = report.outcomes[-1]
    print()
    for other in report.outcomes[:-1]:
        changes = (
            f"peak memory {change(ours.peak, other.peak)}",
            f"memory over time {change(ours.integral, other.integral)}",
            f"wall time {change(ours.seconds, other.seconds)}",
        )
        print(f"{ours.mode} against {other.mode}: {', '.join(changes)}")
    print(f"{report.answers_equal} of {report.answers} answers are those of the {report.outcomes[0].mode} run")
    for line in report.different[:10]:
        print(f"  not so: {line}")


def row(outcome: Outcome) -> tuple[object, ...]:
    return (
        outcome.mode,
        outcome.rollouts,
        outcome.calls,
        outcome.run,
        outcome.hits,
        outcome.forks,
        megabytes(outcome.peak),
        megabytes(outcome.integral),
        f"{outcome.seconds:.1f}",
        f"{outcome.solved}/{outcome.rollouts}",
    )


def change(ours: float, theirs: float) -> str:
    return f"{100 * (ours / theirs - 1):+.0f} %" if theirs else "-"
