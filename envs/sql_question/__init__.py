"""Answer a question over a database of orders."""

from .task import TASK

__all__ = ["TASK"]
