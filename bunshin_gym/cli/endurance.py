"""bench rollout, the long modes: audits of hits, many rollouts at once, an hour of epochs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from typing import Any

from bunshin_gym.bench.rollout import practice
from bunshin_gym.bench.rollout.audits import Audits, audit
from bunshin_gym.bench.rollout.many import Many, play_many
from bunshin_gym.bench.rollout.soak import Soak, soak
from bunshin_gym.bench.rollout.workload import Batch
from bunshin_gym.bench.scale import machine
from bunshin_gym.cli.terminal import Progress, megabytes, table
from bunshin_gym.task import Taskset

__all__ = ["main"]

Chosen = Callable[[Progress], Sequence[Batch]]


def main(args: argparse.Namespace, chosen: Chosen) -> int:
    """Whichever was asked for."""
    if args.audits:
        return _audits(args, chosen)
    return _many(args) if args.many else _soak(args)


def _print(args: argparse.Namespace, found: Audits | Many | Soak, lines: Callable[[Any], Sequence[str]]) -> None:
    if args.json:
        print(json.dumps({"machine": machine(), "engine": args.engine} | found.as_dict(), indent=1, default=str))
    else:
        print("\n".join(lines(found)))
        print(f"\nmeasured on {machine()}")


def _audits(args: argparse.Namespace, chosen: Chosen) -> int:
    with Progress(quiet=args.json) as progress:
        first = chosen(progress)

        def batches(number: int) -> Sequence[Batch]:
            """Recorded rollouts are what they are; practice ones are drawn anew each round."""
            made = [batch for batch in first if not batch.busy]
            for size in {batch.rollouts for batch in first if batch.busy}:
                made += practice.batches(rollouts=size, seed=args.seed + number, pattern=args.task, engine=args.engine)
            return made

        found = audit(batches, args.audits, on_part=progress.start, on_call=progress.advance)
    _print(args, found, audit_lines)
    return 1 if found.false or found.failures or found.audited < found.wanted else 0


def audit_lines(found: Audits) -> list[str]:
    rows = [
        ("calls", found.calls, ""),
        ("hits", found.hits, f"{found.by_state} of them at another history of the same state"),
        ("audited", found.audited, f"of {found.wanted} wanted, in {found.rounds} rounds"),
        ("could not be audited", found.could_not, ""),
        ("false", found.false, "to reach: 0"),
    ]
    lines = [table(("audits of hits", "calls", ""), rows, left=(0, 2))]
    lines += [f"false: {call} ({times} times)" for call, times in found.calls_false.most_common(20)]
    return lines + [f"failed: {failure}" for failure in found.failures[:20]]


def _many(args: argparse.Namespace) -> int:
    tasks = Taskset.load(args.task or "test_suite")
    with Progress(quiet=args.json) as progress:
        found = play_many(
            tasks[0],
            args.many,
            engine=args.engine,
            memory_budget=args.memory_budget,
            on_part=progress.start,
            on_step=progress.advance,
        )
    _print(args, found, many_lines)
    return 1 if found.wrong or found.failures or found.answered < found.rollouts else 0


def many_lines(found: Many) -> list[str]:
    counted = ("hits", "waits", "forks", "snapshots", "snapshots_evicted", "replays", "parked", "woken")
    rows = [
        ("rollouts at once", found.opened, f"of {found.rollouts} wanted"),
        ("find their state again", found.answered, ""),
        ("peak memory", f"{megabytes(found.peak)} MB", ""),
        ("each for itself", f"{megabytes(found.own)} MB", f"{megabytes(found.one)} MB a workspace"),
        *_budget_rows(found),
        ("until all were there", f"{found.all_at_once:.1f} s", ""),
        ("in all", f"{found.seconds:.1f} s", ""),
    ]
    lines = [table(("many rollouts", "", ""), rows, left=(0, 2))]
    lines.append(", ".join(f"{name} {found.stats[name]}" for name in counted if name in found.stats))
    return lines + [f"wrong: {text}" for text in found.wrong[:20]] + [f"failed: {f}" for f in found.failures[:20]]


def _budget_rows(found: Many) -> list[tuple[object, ...]]:
    if found.budget is None:
        return []
    seconds = found.stats["seconds"]
    spent = ", ".join(f"{name} {seconds.get(name, 0.0):.1f} s" for name in ("park", "wake", "budget"))
    return [
        ("memory as counted, at most", f"{megabytes(found.counted)} MB", f"of {megabytes(found.budget)} MB; {spent}")
    ]


def _soak(args: argparse.Namespace) -> int:
    tasks = Taskset.load(args.task or "basic")
    with Progress(quiet=args.json) as progress:
        found = soak(
            tasks,
            args.soak,
            engine=args.engine,
            on_part=progress.start,
            on_call=progress.advance,
        )
    _print(args, found, soak_lines)
    return 1 if found.failures else 0


def soak_lines(found: Soak) -> list[str]:
    rows = []
    for name, (before, after) in found.growth().items():
        shown = megabytes if name in ("rss", "stores", "results") else "{:.1f}".format
        change = f"{100 * (after / before - 1):+.1f} %" if before else f"{after - before:+.1f}"
        rows.append((name, shown(before), shown(after), change))
    head = f"{found.seconds:.0f} s, {found.epochs} epochs, {found.calls} calls; between epochs, when no rollout is open"
    header = ("", "second quarter", "last quarter", "growth")
    return [head, "", table(header, rows), *(f"failed: {failure}" for failure in found.failures[:20])]
