"""Report on a million taxi trips."""

from .task import TASK

__all__ = ["TASK"]
