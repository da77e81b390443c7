"""What the values of options may be: types for argparse, which says what is wrong with one in a line."""

from __future__ import annotations

import math
from argparse import ArgumentTypeError

from bunshin_gym.workspace import parse_size

__all__ = ["count", "counts", "duration", "factor", "size"]


def count(text: str) -> int:
    """A whole number from 1 on."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return value


def counts(text: str) -> tuple[int, ...]:
    """Such numbers, by commas."""
    return tuple(count(part.strip()) for part in text.split(","))


def duration(text: str) -> float:
    """Seconds from 0 on."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ArgumentTypeError(f"{text!r} is no number of seconds")
    return value


def factor(text: str) -> float:
    """What something is multiplied with: a number from 0 on."""
    try:
        return duration(text)
    except ArgumentTypeError:
        raise ArgumentTypeError(f"{text!r} is not a number from 0 on") from None


def size(text: str) -> int:
    """Bytes, perhaps with a suffix."""
    try:
        value = parse_size(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error
    if value is None:
        raise ArgumentTypeError(f"{text!r} is no size")
    return value
