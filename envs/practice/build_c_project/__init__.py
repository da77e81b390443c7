"""Find two faults in a C library of 72 sources."""

from .task import TASK

__all__ = ["TASK"]
