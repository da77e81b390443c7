"""Repair the Makefile of a small C program."""

from .task import TASK

__all__ = ["TASK"]
