"""Small tasks on a desktop: a letter, a file to be renamed, a line to be drawn."""

from .drawing import DRAWING
from .files import FILES
from .letter import LETTER

__all__ = ["TASKS"]

TASKS = (LETTER, FILES, DRAWING)
