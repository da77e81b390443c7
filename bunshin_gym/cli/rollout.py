"""bench rollout: groups of rollouts beside both baselines, on recorded trajectories and on the practice tasks."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import bunshin_gym
from bunshin_gym.bench.rollout import practice, recorded
from bunshin_gym.bench.rollout.figures import Figures, Ratio, run, spread
from bunshin_gym.bench.rollout.modes import ABLATIONS, COLD, OURS, READY, WARM, by_name
from bunshin_gym.bench.rollout.playing import Outcome
from bunshin_gym.bench.rollout.workload import Batch
from bunshin_gym.bench.scale import machine
from bunshin_gym.cli import endurance, reports
from bunshin_gym.cli.terminal import Progress, megabytes, table
from bunshin_gym.cli.values import count, counts, duration, factor, size
from bunshin_gym.errors import TaskError

__all__ = ["arguments", "main"]

# What is to be reached in practice: at most this much of the baseline.
_PEAK, _INTEGRAL, _LATENCY_WARM, _LATENCY_COLD = 0.35, 0.30, 0.65, 0.40
# On recordings: as near to the bound as this, and never slower than this.
_NEAR_BOUND, _NEVER_SLOWER = 1.10, 1.01


def arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("rollout: what is played")
    what.add_argument("--workload", default="", metavar="NAME", help="practice, traces, or both, by a comma")
    what.add_argument("--tasks", type=Path, metavar="FILE", help="the tasks of a recording, as JSON lines")
    what.add_argument("--trajectories", type=Path, metavar="FILE", help="its rollouts, as JSON lines")
    what.add_argument("--task", default="", metavar="GLOB", help="only tasks of such a name")
    what.add_argument(
        "--rollouts", type=counts, default=(8, 16), metavar="N,…", help="rollouts of a practice group (8,16)"
    )
    what.add_argument("--limit", type=count, metavar="N", help="only the first N rollouts of a recorded group")
    what.add_argument("--apart", action="store_true", help="play each recorded task as a batch of its own")
    how = parser.add_argument_group("rollout: how")
    how.add_argument("--runs", type=count, default=5, metavar="N", help="how often; figures are medians (5)")
    how.add_argument("--time-scale", type=factor, metavar="X", help="thinking times, times X (practice 0.25, traces 1)")
    how.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of the practice rollouts, and of the random programs (0)"
    )
    how.add_argument("--modes", default="", metavar="NAME,…", help="only these modes")
    reports.option(how)
    how.add_argument("--ablations", action="store_true", help="also with each technique off in turn, and with drafts")
    how.add_argument("--audits", type=count, metavar="N", help="instead: play on until N hits have been run again")
    how.add_argument("--many", type=count, metavar="N", help="instead: N rollouts at once (of test_suite or --task)")
    how.add_argument("--memory-budget", type=size, metavar="SIZE", help='for --many: at most this, e.g. "8G"')
    how.add_argument("--soak", type=duration, metavar="S", help="instead: S seconds of epochs, and what has grown")


def main(args: argparse.Namespace) -> int:
    reports.check(args.report)
    if args.audits or args.many or args.soak:
        return endurance.main(args, lambda progress: list(chosen(args, progress)))
    modes = by_name(args.modes) if args.modes else (COLD, WARM, OURS, *(ABLATIONS if args.ablations else ()))
    found: list[Figures] = []
    with Progress(quiet=args.json) as progress:
        for batch in chosen(args, progress):
            figures = run(
                batch,
                modes,
                args.runs,
                watch=args.report is not None,
                on_part=progress.start,
                on_call=progress.advance,
            )
            found.append(figures)
            if not args.json:
                progress.clear()
                print("\n".join(lines(figures)), flush=True)
                print()
    if args.json:
        print(json.dumps(as_json(args, found), indent=1))
    else:
        print(f"measured on {machine()}; bunshin_gym {bunshin_gym.__version__}")
    reports.save(args, "bench rollout", [figures.seen() for figures in found], f"last of {args.runs} runs")
    failures = [failure for figures in found for one in figures.runs for o in one for failure in o.failures]
    for failure in failures[:20]:
        print(f"failed: {failure}", file=sys.stderr)
    different = sum(a.compared - a.equal for figures in found for a in figures.answers)
    return 1 if failures or different else 0


def chosen(args: argparse.Namespace, progress: Progress) -> Iterator[Batch]:
    """The batches that were asked for, in turn."""
    given = args.workload or ("practice,traces" if args.tasks else "practice")
    for name in given.split(","):
        if name == "practice":
            for rollouts in args.rollouts:
                yield from practice.batches(
                    rollouts=rollouts,
                    seed=args.seed,
                    pattern=args.task,
                    scale=args.time_scale if args.time_scale is not None else 0.25,
                    engine=args.engine,
                )
        elif name == "traces":
            if args.tasks is None or args.trajectories is None:
                raise TaskError("the workload traces needs --tasks FILE and --trajectories FILE")
            yield from recorded.batches(
                args.tasks,
                args.trajectories,
                pattern=args.task,
                scale=args.time_scale if args.time_scale is not None else 1.0,
                engine=args.engine,
                rollouts=args.limit,
                apart=args.apart,
                on_image=progress.start,
            )
        else:
            raise TaskError(f"there is no workload {name!r}; there are practice and traces")


def as_json(args: argparse.Namespace, found: list[Figures]) -> dict[str, Any]:
    """Everything that was measured, and on what."""
    return {
        "machine": machine(),
        "version": bunshin_gym.__version__,
        "python": sys.version.split()[0],
        "engine": args.engine,
        "runs": args.runs,
        "time_scale": args.time_scale,
        "seed": args.seed,
        "batches": [
            figures.as_dict() | {"ratios": [ratio.as_dict() for ratio in ratios(figures)]} for figures in found
        ],
    }


def ratios(figures: Figures) -> list[Ratio]:
    """What the goals speak of: practice has goals of its own, a recording is held against its bound."""
    practised = figures.batch.partition(" ")[2].startswith("×")
    peak, integral, warm, cold = (
        (_PEAK, _INTEGRAL, _LATENCY_WARM, _LATENCY_COLD) if practised else (None, None, _NEVER_SLOWER, None)
    )
    found = [
        figures.ratio("peak memory", lambda o: o.peak, WARM.name, peak),
        figures.ratio("memory over time", lambda o: o.integral, WARM.name, integral),
        figures.ratio("latency of the batch", lambda o: o.seconds, WARM.name, warm),
        figures.ratio("latency of the batch", lambda o: o.seconds, COLD.name, cold),
    ]
    found.append(figures.ratio(f"latency, {READY.name}", lambda o: o.seconds, WARM.name, warm, mode=READY.name))
    ours = figures.outcomes(OURS.name)
    if ours and figures.bounds:
        each = tuple(o.seconds / b.oracle for o, b in zip(ours, figures.bounds, strict=True))
        found.append(Ratio("latency of the batch", "its bound", each, _NEAR_BOUND))
    tasks = ours[0].ends if ours else {}
    if len(tasks) > 1:
        found += [figures.ratio(f"latency of {task}", _end(task), WARM.name, _NEVER_SLOWER) for task in tasks]
    return [ratio for ratio in found if ratio is not None]


def _end(task: str) -> Callable[[Outcome], float]:
    return lambda outcome: outcome.ends[task]


def lines(figures: Figures) -> Iterable[str]:
    """The figures of a batch, as they are printed."""
    runs = len(figures.runs)
    yield f"{figures.batch}: {figures.rollouts} rollouts, {figures.calls} calls; runs: {runs}, figures are medians"
    for about in figures.about:
        yield f"  {about}"
    yield ""
    header = ("", "calls", "run", "hits", "peak MB", "GB·s", "batch s", "±", "call p50 ms", "p90 s", "max s", "solved")
    names = dict.fromkeys(outcome.mode for one in figures.runs for outcome in one)
    yield table(header, [_row(figures, name) for name in names])
    yield from _drafts(figures, names)
    if figures.bounds:
        middle = sorted(figures.bounds, key=lambda b: b.oracle)[len(figures.bounds) // 2]
        yield ""
        other = sorted(figures.histories, key=lambda b: b.oracle)[len(figures.histories) // 2]
        yield (
            f"the bound, from the calls of each run at their quickest: of {middle.tools:.1f} s of tools "
            f"{middle.saved:.1f} s ({_percent(middle.saved, middle.tools)}) could be saved, {middle.hits} of "
            f"{middle.calls} calls (by history {other.saved:.1f} s, {other.hits} calls); the batch would take "
            f"{middle.oracle:.1f} s instead of {middle.latency:.1f} s; its longest rollout thinks for "
            f"{middle.thinking:.1f} s"
        )
    yield ""
    rows = [
        (
            ratio.what,
            ratio.against,
            f"{100 * (ratio.median - 1):+.1f} %",
            f"{100 * min(ratio.each) - 100:+.1f} … {100 * max(ratio.each) - 100:+.1f}",
            "" if ratio.goal is None else f"{100 * (ratio.goal - 1):+.0f} %",
            {None: "", True: "reached", False: "not reached"}[ratio.reached],
        )
        for ratio in ratios(figures)
    ]
    yield table(("bunshin", "against", "median", "spread", "to reach", ""), rows, left=(0, 1, 5))
    compared, equal, nature = (
        sum(getattr(a, name) for a in figures.answers) for name in ("compared", "equal", "by_nature")
    )
    yield (
        f"\n{equal} of {compared} answers are those of the baselines ({nature} calls left out, whose answers differ "
        "between the two baselines)"
    )
    for text in [text for a in figures.answers for text in a.different][:5]:
        yield f"  not so: {text}"


def _drafts(figures: Figures, names: Iterable[str]) -> Iterable[str]:
    """What became of drafts, in the modes that made some."""
    for name in names:

        def of(what: str, name: str = name) -> float:
            return figures.middle(name, lambda o: o.stats.get(what, 0))

        if of("drafts_proposed"):
            yield (
                f"{name}: {of('drafts_proposed'):.0f} drafts proposed, {of('drafts_begun'):.0f} begun, "
                f"{of('drafts'):.0f} adopted, {of('drafts_squashed'):.0f} squashed; {of('drafts_saved_seconds'):.1f} s "
                f"of waiting saved, {of('drafts_wasted_seconds'):.1f} s spent in vain"
            )


def _row(figures: Figures, mode: str) -> tuple[object, ...]:
    def p(share: float) -> float:
        return figures.middle(mode, lambda o: (o.latencies() or [0.0])[int(share * (len(o.latencies()) - 1))])

    return (
        mode,
        f"{figures.middle(mode, lambda o: o.calls):.0f}",
        f"{figures.middle(mode, lambda o: o.run):.0f}",
        f"{figures.middle(mode, lambda o: o.hits):.0f}",
        megabytes(figures.middle(mode, lambda o: o.peak)),
        f"{figures.middle(mode, lambda o: o.integral) / 1e9:.1f}",
        f"{figures.middle(mode, lambda o: o.seconds):.1f}",
        f"{100 * spread(o.seconds for o in figures.outcomes(mode)):.0f} %",
        f"{1000 * p(0.5):.1f}",
        f"{p(0.9):.2f}",
        f"{p(1):.1f}",
        f"{figures.middle(mode, lambda o: o.solved):.0f}",
    )


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"
