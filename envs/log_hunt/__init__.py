"""Find the stolen session in the logs of two web servers."""

from .task import TASK

__all__ = ["TASK"]
