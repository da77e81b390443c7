"""Write a script that cleans a table of sensor readings."""

from .task import TASK

__all__ = ["TASK"]
