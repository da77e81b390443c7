"""Make a web service answer again."""

from .task import TASK

__all__ = ["TASK"]
