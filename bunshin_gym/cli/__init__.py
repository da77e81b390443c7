"""The command line: `bunshin COMMAND`, or `python -m bunshin_gym COMMAND`."""

from bunshin_gym.cli.entry import main

__all__ = ["main"]
