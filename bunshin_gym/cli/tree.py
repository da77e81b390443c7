"""tree: draw the call tree of a run."""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from bunshin_gym.branch import Branch, of_saved
from bunshin_gym.cli.terminal import Progress
from bunshin_gym.cli.values import count
from bunshin_gym.errors import TaskError, TreeFileError
from bunshin_gym.picture import draw
from bunshin_gym.report import Report, Run, TaskTree, load
from bunshin_gym.scripted import play_taskset
from bunshin_gym.task import Taskset
from bunshin_gym.treefile import TreeFile, is_tree_file

__all__ = ["arguments", "main"]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", type=Path, help="what `bunshin run --report` or `--tree` has written; else a run is made"
    )
    parser.add_argument(
        "--task", default="fix_failing_test", metavar="NAME", help="the task to play (fix_failing_test)"
    )
    parser.add_argument("--rollouts", type=count, default=6, metavar="N", help="rollouts to play (6)")
    parser.add_argument("--engine", default="native", help="the engine (native)")
    parser.add_argument("--width", type=count, metavar="N", help="columns to draw in (those of the terminal)")
    parser.add_argument("--json", action="store_true", help="print it as the JSON of a report, to be read again")
    parser.add_argument(
        "--plain", action="store_true", help="no colours (they are left out where nobody could see them)"
    )


def main(args: argparse.Namespace) -> int:
    plain = read(args.file) if args.file is not None else made(args)
    if args.json:
        print(json.dumps(plain))
        return 0
    try:
        trees = [Branch.from_dict(task) for run in plain["runs"] for task in run["tasks"]]
    except (TypeError, KeyError, TaskError) as error:
        raise TaskError(f"cannot draw {args.file}: {error}") from error
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # the lines of a tree are in no ASCII
    colour = not args.plain and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    width = args.width or shutil.get_terminal_size((100, 24)).columns
    print("\n\n".join(draw(tree, width=width, colour=colour) for tree in trees))
    return 0


def read(path: Path) -> dict[str, Any]:
    """A report; of saved call trees, one of those. Raises TaskError, TreeFileError."""
    try:
        if not is_tree_file(path):
            return load(path)
        trees = [TaskTree(root.name, of_saved(root)) for root in TreeFile.read(path).roots.values()]
    except TreeFileError:
        raise
    except OSError as error:
        raise TaskError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise TaskError(f"cannot read {path}: {error}") from error
    return Report(path.name, runs=[Run(path.name, tasks=trees)]).as_dict()


def made(args: argparse.Namespace) -> dict[str, Any]:
    """The report of a run made now."""
    with Progress() as progress:
        done = play_taskset(
            Taskset.load(args.task),
            rollouts=args.rollouts,
            engine=args.engine,
            watch=True,
            on_task=progress.start,
            on_call=progress.advance,
        )
    return Report(f"task {args.task}", runs=[one.run for one in done if one.run is not None]).as_dict()
