"""tree: draw the call tree of a run."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

from bunshin_gym.cli.terminal import Progress
from bunshin_gym.errors import TaskError, TreeFileError
from bunshin_gym.picture import Branch, draw, of_saved
from bunshin_gym.scripted import play_taskset
from bunshin_gym.task import Taskset
from bunshin_gym.treefile import TreeFile, is_tree_file

__all__ = ["arguments", "main"]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", type=Path, help="trees kept by `bunshin run --save-tree` or `--tree`; else a run is made"
    )
    parser.add_argument(
        "--task", default="fix_failing_test", metavar="NAME", help="the task to play (fix_failing_test)"
    )
    parser.add_argument("--rollouts", type=int, default=6, metavar="N", help="rollouts to play (6)")
    parser.add_argument("--engine", default="native", help="the engine (native)")
    parser.add_argument(
        "--plain", action="store_true", help="no colours (they are left out where nobody could see them)"
    )


def main(args: argparse.Namespace) -> int:
    colour = not args.plain and sys.stdout.isatty() and "NO_COLOR" not in os.environ
    width = shutil.get_terminal_size((100, 24)).columns
    trees = load(args.file) if args.file is not None else made(args)
    print("\n\n".join(draw(tree, width=width, colour=colour) for tree in trees))
    return 0


def load(path: Path) -> list[Branch]:
    """The trees in a file. Raises TaskError, TreeFileError."""
    try:
        if is_tree_file(path):
            return [of_saved(root) for root in TreeFile.read(path).roots.values()]
        return [Branch.from_dict(tree) for tree in json.loads(path.read_text())]
    except OSError as error:
        raise TaskError(f"cannot read {path}: {error.strerror}") from error
    except TreeFileError:
        raise
    except ValueError as error:
        raise TaskError(f"cannot read {path}: it holds no call tree: {error}") from error


def made(args: argparse.Namespace) -> list[Branch]:
    """The tree of a run made now."""
    with Progress() as progress:
        reports = play_taskset(
            Taskset.load(args.task),
            rollouts=args.rollouts,
            engine=args.engine,
            on_task=progress.start,
            on_call=progress.advance,
        )
    return [report.tree for report in reports]
