"""run: replay recorded trajectories, or play scripted policies on a taskset."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bunshin_gym import traces
from bunshin_gym.cli import reports, serving
from bunshin_gym.cli.terminal import Progress, table
from bunshin_gym.cli.values import count
from bunshin_gym.errors import TaskError
from bunshin_gym.replay import TaskReport, replay
from bunshin_gym.report import Run
from bunshin_gym.scripted import TasksetReport, play_taskset
from bunshin_gym.task import Taskset
from bunshin_gym.treefile import TreeFile

__all__ = ["arguments", "main"]

BASELINE = "neither cache nor sharing"


def arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("what to run: a taskset, or the two files of a recording")
    what.add_argument("--taskset", metavar="NAME", help="play the scripted policies of a taskset, or of one task")
    what.add_argument("--tasks", type=Path, metavar="FILE", help="the tasks of a recording, as JSON lines")
    what.add_argument("--trajectories", type=Path, metavar="FILE", help="its rollouts, as JSON lines")
    what.add_argument(
        "--task",
        default="",
        metavar="GLOB",
        help="only tasks of such a name (of a recording: all plain ones otherwise)",
    )
    how = parser.add_argument_group("how")
    how.add_argument(
        "--rollouts", type=count, metavar="N", help="rollouts a task (all recorded ones, or 4 scripted ones)"
    )
    how.add_argument("--jobs", type=count, default=4, metavar="N", help="rollouts of a task at a time (4)")
    how.add_argument("--no-cache", dest="cache", action="store_false", help="run every call")
    how.add_argument("--no-share", dest="share", action="store_false", help="a workspace of its own for every rollout")
    how.add_argument("--engine", default="native", help="the engine (native)")
    how.add_argument(
        "--tree",
        type=Path,
        metavar="FILE",
        help="go on with the call trees saved there, if any, and save them at the end",
    )
    reports.option(how)
    serving.option(how)
    how.add_argument(
        "--baseline", action="store_true", help="with --report: play each task without cache and sharing, too"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a task")
    parser.add_argument("-v", "--verbose", action="store_true", help="show each exit code that does not agree")


def main(args: argparse.Namespace) -> int:
    reports.check(args.report)
    if args.baseline and args.report is None:
        raise TaskError("--baseline is for a report: give --report FILE, too")
    if args.tree is not None and not args.cache:
        raise TaskError("--tree and --no-cache cannot be given together")
    reports.check(args.tree)
    trees = TreeFile.read_if_there(args.tree) if args.tree is not None else None
    with serving.served(args.metrics) as told:
        code = run_what(args, trees, told)
    if trees is not None:
        trees.write(args.tree)
    return code


def run_what(args: argparse.Namespace, trees: TreeFile | None, told: serving.Told) -> int:
    if args.taskset is not None:
        return run_taskset(args, trees, told)
    if args.tasks is None or args.trajectories is None:
        raise TaskError("nothing to run: give --taskset NAME, or --tasks FILE and --trajectories FILE")
    return run_traces(args, trees, told)


def beside(ours: Run | None, theirs: Run | None) -> None:
    """Have a report show the baseline's memory and times with ours."""
    if ours is not None and theirs is not None:
        ours.modes += [replace(mode, name=BASELINE) for mode in theirs.modes]


def engine_of(args: argparse.Namespace) -> str:
    return f"{args.engine} engine{'' if args.cache else ', without cache'}{'' if args.share else ', without sharing'}"


# -- recordings


def run_traces(args: argparse.Namespace, trees: TreeFile | None, told: serving.Told) -> int:
    chosen = traces.load(args.tasks, args.trajectories, args.task)
    if not chosen:
        raise TaskError(
            f"no task of {args.tasks} is called {args.task!r}" if args.task else f"{args.tasks} has no tasks"
        )
    done = []
    with Progress(quiet=args.json) as progress:
        for number, task in enumerate(chosen, 1):
            calls = sum(len(rollout.calls) for rollout in task.rollouts[: args.rollouts])
            progress.start(f"[{number}/{len(chosen)}] {task.name}", calls)
            options = {
                "rollouts": args.rollouts,
                "engine": args.engine,
                "jobs": args.jobs,
                "watch": args.report is not None,
                "on_call": progress.advance,
            }
            report = replay(task, cache=args.cache, share=args.share, trees=trees, on_stats=told, **options)
            if args.baseline:
                progress.start(f"[{number}/{len(chosen)}] {task.name}, {BASELINE}", calls)
                beside(report.run, replay(task, cache=False, share=False, **options).run)
            done.append(report)
            if args.json:
                print(json.dumps(report.as_dict()), flush=True)
    if not args.json:
        show_traces(done, args.verbose)
    reports.save(args, f"{args.trajectories.name}, made again", [report.run for report in done], engine_of(args))
    wrong = any(report.failures or report.disagreements for report in done)
    return 1 if wrong else 0


def show_traces(reports: Sequence[TaskReport], verbose: bool) -> None:
    header = (
        "task",
        "rollouts",
        "calls",
        "hits",
        "forks",
        "exit codes",
        "outputs alike",
        "the same",
        "setup s",
        "wall s",
    )
    rows = [trace_row(report.task, [report]) for report in reports]
    if len(reports) > 1:
        rows.append(trace_row("all", reports))
    print(table(header, rows))
    print("exit codes, outputs: how many agree, of those where the recorded replay agrees with the recording")
    for report in reports:
        for failure in report.failures:
            print(f"failed: {failure}")
        for d in report.disagreements if verbose else ():
            print(f"\n{d.rollout}, call {d.number}: exit code {d.code}, expected {d.expected}")
            print(f"  {d.command!r}\n  {d.output!r}")


def trace_row(name: str, reports: Sequence[TaskReport]) -> tuple[object, ...]:
    def total(field: str) -> int:
        return sum(getattr(report, field) for report in reports)

    return (
        name,
        total("rollouts"),
        total("calls"),
        sum(report.stats.hits + report.stats.waits for report in reports),
        sum(report.stats.forks for report in reports),
        f"{total('codes_agree')}/{total('codes_comparable')}",
        f"{total('alike_agree')}/{total('alike_comparable')}",
        f"{total('same_agree')}/{total('same_comparable')}",
        f"{sum(report.setup_seconds for report in reports):.1f}",
        f"{sum(report.wall_seconds for report in reports):.1f}",
    )


# -- tasksets


def run_taskset(args: argparse.Namespace, trees: TreeFile | None, told: serving.Told) -> int:
    tasks = Taskset.load(args.taskset)
    with Progress(quiet=args.json) as progress:
        options = {
            "pattern": args.task,
            "rollouts": args.rollouts or 4,
            "engine": args.engine,
            "jobs": args.jobs,
            "watch": args.report is not None,
            "on_call": progress.advance,
        }
        ours = {"cache": args.cache, "share": args.share, "trees": trees, "on_stats": told}
        done = play_taskset(tasks, on_task=progress.start, **ours, **options)
        if args.baseline:

            def start(name: str, calls: int) -> None:
                progress.start(f"{name}, {BASELINE}", calls)

            others = play_taskset(tasks, cache=False, share=False, on_task=start, **options)
            for report, other in zip(done, others, strict=True):
                beside(report.run, other.run)
    if args.json:
        for report in done:
            print(json.dumps(report.as_dict()))
    else:
        show_taskset(done)
    reports.save(args, f"taskset {args.taskset}", [report.run for report in done], engine_of(args))
    return 1 if any(report.failures for report in done) else 0


def show_taskset(reports: Sequence[TasksetReport]) -> None:
    header = ("task", "rollouts", "calls", "run", "hits", "forks", "solved", "wall s")
    rows = [
        (
            report.task,
            report.rollouts,
            report.stats.calls,
            report.stats.misses,
            report.stats.hits + report.stats.waits,
            report.stats.forks,
            f"{report.solved}/{report.rollouts}",
            f"{report.wall_seconds:.1f}",
        )
        for report in reports
    ]
    print(table(header, rows))
    for report in reports:
        for failure in report.failures:
            print(f"failed: {failure}", file=sys.stderr)
