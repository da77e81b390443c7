"""What the commands that can write a report have in common: the option, and the writing of it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from pathlib import Path

from bunshin_gym.bench.scale import machine
from bunshin_gym.errors import TaskError
from bunshin_gym.report import Report, Run, write

__all__ = ["check", "option", "save"]


def option(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--report",
        type=Path,
        metavar="FILE",
        help="write what happened as one page for a browser; as JSON, where the name ends in .json",
    )


def check(path: Path | None) -> None:
    """Before anything is played: whether there will be a place to write to (None: nothing is). Raises TaskError."""
    if path is None:
        return
    if path.is_dir():
        raise TaskError(f"cannot write {path}: it is a directory")
    if not path.parent.is_dir():
        raise TaskError(f"cannot write {path}: there is no directory {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise TaskError(f"cannot write {path}: permission denied")


def save(args: argparse.Namespace, title: str, runs: Iterable[Run | None], *facts: str) -> None:
    """Write the report, where one was asked for."""
    if args.report is not None:
        write(Report(title, [*facts, machine()], [run for run in runs if run is not None]), args.report)
