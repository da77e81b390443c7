"""Find two faults in a Python package with a slow test suite."""

from .task import TASK

__all__ = ["TASK"]
