"""What an episode looks like: its transcript as text, or drawn as a terminal of 80 x 25 characters."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from bunshin_gym import font

__all__ = ["COLUMNS", "ROWS", "as_picture", "as_text"]

COLUMNS, ROWS = 80, 25
_BACKGROUND = np.array([24, 26, 31], dtype=np.uint8)
_TEXT = np.array([205, 209, 214], dtype=np.uint8)
_ACTION = np.array([130, 200, 120], dtype=np.uint8)

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?")


def as_text(transcript: Iterable[tuple[str, str]]) -> str:
    """The transcript: each action after a prompt, each observation below it. The first entry is the instruction."""
    return "".join(line + "\n" for line, _ in _lines(transcript))


def as_picture(transcript: Iterable[tuple[str, str]]) -> NDArray[np.uint8]:
    """The last 25 lines of the transcript, drawn: uint8, shape (400, 640, 3)."""
    rows: list[tuple[str, bool]] = []
    for line, is_action in _lines(transcript):
        plain = _printable(line)
        rows += [(plain[i : i + COLUMNS], is_action) for i in range(0, max(len(plain), 1), COLUMNS)]
    rows = rows[-ROWS:]
    codes = np.zeros((ROWS, COLUMNS), dtype=np.intp)
    colours = np.broadcast_to(_TEXT, (ROWS, 3)).copy()
    for y, (text, is_action) in enumerate(rows):
        codes[y, : len(text)] = [ord(c) - 32 if " " <= c <= "~" else 95 for c in text]
        if is_action:
            colours[y] = _ACTION
    ink = _glyphs()[codes].transpose(0, 2, 1, 3).reshape(ROWS, font.HEIGHT, COLUMNS * font.WIDTH, 1)
    picture = np.where(ink, colours[:, None, None, :], _BACKGROUND)
    return picture.reshape(ROWS * font.HEIGHT, COLUMNS * font.WIDTH, 3)


def _lines(transcript: Iterable[tuple[str, str]]) -> Iterable[tuple[str, bool]]:
    for action, observation in transcript:
        for i, line in enumerate(action.split("\n")) if action else ():
            yield ("$ " if i == 0 else "> ") + line, True
        for line in observation.removesuffix("\n").split("\n") if observation else ():
            yield line, False


def _printable(line: str) -> str:
    """What a terminal would show of a line: no escape sequences, tabs filled, only what follows the last return."""
    line = _ESCAPES.sub("", line.removesuffix("\r")).rsplit("\r", 1)[-1].expandtabs(8)
    return "".join(c for c in line if unicodedata.category(c)[0] != "C" and not unicodedata.combining(c))


@functools.cache
def _glyphs() -> NDArray[np.bool_]:
    return font.glyphs()
