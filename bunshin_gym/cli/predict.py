"""bench predict: how often the next call of recorded rollouts is foretold, a predictor a line."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path

import bunshin_gym
from bunshin_gym import traces
from bunshin_gym.bench.predict import Family, Score, evaluate
from bunshin_gym.bench.rollout.recorded import is_group
from bunshin_gym.cli.terminal import Progress, table
from bunshin_gym.cli.values import count, duration
from bunshin_gym.errors import TaskError

__all__ = ["arguments", "main", "recorded"]


def arguments(parser: argparse.ArgumentParser) -> None:
    how = parser.add_argument_group("predict (of --trajectories DIR, and --task)")
    how.add_argument("--folds", type=count, default=4, metavar="N", help="test on each Nth part of the rollouts (4)")
    how.add_argument("--forking", type=duration, default=0.04, metavar="S", help="seconds of a seal and a fork (0.04)")


def main(args: argparse.Namespace) -> int:
    with Progress(quiet=args.json) as progress:
        groups = [task for task in recorded(args) if is_group(task)]
        families = evaluate(groups, folds=args.folds, forking=args.forking, on_part=progress.start)
    if args.json:
        plain = {
            family: {which: [score.as_dict() for score in row] for which, row in found.scores.items()}
            | {"drafts": vars(found.drafted)}
            for family, found in families.items()
        }
        print(json.dumps({"version": bunshin_gym.__version__, "folds": args.folds, "families": plain}, indent=1))
    else:
        print("\n".join(lines(families)))
    return 0


def recorded(args: argparse.Namespace) -> list[traces.TraceTask]:
    """The recorded tasks that were asked for. Raises TaskError."""
    if args.trajectories is None:
        raise TaskError(f"bench {args.what} needs --trajectories DIR, with tasks.jsonl and trajectories.jsonl in it")
    given: Path = args.trajectories
    tasks, rollouts = (given / "tasks.jsonl", given / "trajectories.jsonl") if given.is_dir() else (args.tasks, given)
    if tasks is None:
        raise TaskError(f"{given} is no directory: give --tasks FILE as well")
    return traces.load(tasks, rollouts, args.task or "*")


def lines(families: dict[str, Family]) -> Iterable[str]:
    """The scores as tables, and how honest the mix is."""
    for family, found in families.items():
        for which, row in found.scores.items():
            yield f"{family}, {which}: {row[0].calls if row else 0} calls"
            header = ("", "top-1", "top-3", "top-1, seconds", "top-3, seconds", "log loss", "off by")
            yield table(header, [_row(score) for score in row])
            yield ""
        yield f"{family}, the guesses of the mix:"
        bins = found.scores["all"][-1].as_dict()["calibration"]
        rows = [(f"{b['up_to']:g}", b["guesses"], _percent(b["said"]), _percent(b["came"])) for b in bins]
        yield table(("probability up to", "guesses", "said", "came"), rows)
        d = found.drafted
        yield (
            f"\n{family}, drafts where they pay, at {1000 * d.forking:.0f} ms for a seal and a fork: {d.begun} begun, "
            f"{d.adopted} adopted; of {d.total:.1f} s of calls {d.saved:.1f} s saved, {d.wasted:.1f} s spent in vain\n"
        )


def _row(score: Score) -> tuple[object, ...]:
    calls, seconds = max(1, score.calls), score.seconds or 1.0
    return (
        score.predictor,
        _percent(score.first / calls),
        _percent(score.three / calls),
        _percent(score.first_seconds / seconds),
        _percent(score.three_seconds / seconds),
        f"{score.loss / calls:.2f}",
        f"{score.off:.3f}",
    )


def _percent(part: float) -> str:
    return f"{100 * part:.1f} %"
