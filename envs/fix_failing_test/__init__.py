"""Fix the failing tests of a small Python repository."""

from .task import TASK

__all__ = ["TASK"]
