"""From the words of a command line to a command. One file a command, each a thin face of one library call."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from bunshin_gym.cli import bench, demo, doctor, run, tree
from bunshin_gym.errors import BunshinError

__all__ = ["main"]

COMMANDS = (doctor, demo, run, bench, tree)
INTERRUPTED = 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bunshin", description="Live workspaces that fork, for agents that learn.")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in COMMANDS:
        name = module.__name__.rpartition(".")[2]
        summary = (module.__doc__ or "").partition("\n")[0].partition(": ")[2]
        sub = commands.add_parser(name, help=summary, description=summary)
        module.arguments(sub)
        sub.set_defaults(command=module.main)
    return parser


def _terminate(number: int, frame: FrameType | None) -> None:
    """A polite request to end is an interrupt: everything is closed on the way out."""
    raise KeyboardInterrupt


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code. 0: well, 1: it found something wrong, 2: it could not be done."""
    args = _parser().parse_args(argv)
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        code: int = args.command(args)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("\nbunshin: interrupted; every workspace was closed", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python's own flush at exit must not complain about it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except BunshinError as error:
        print(f"bunshin: {error}", file=sys.stderr)
        return 2
    finally:
        signal.signal(signal.SIGTERM, before)
