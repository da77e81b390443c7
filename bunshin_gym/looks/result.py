"""What the result of a call tells: what it has looked at, and whether two results are of the same call in one state."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime

from bunshin_gym.looks.look import Look
from bunshin_gym.tools.call import ToolResult

__all__ = ["agree", "shown"]

_SLACK = 1.5  # seconds between what a program calls now and what we do

_EPOCH = re.compile(r"(?<![\d.])1[6-9]\d{8}(?:\.\d+|\d{3}|\d{6}|\d{9})?(?!\d)")
_STAMP = re.compile(r"\b(\d{4})[-/](\d\d)[-/](\d\d)[T _](\d\d)[:.](\d\d)[:.](\d\d)")
_DATE = re.compile(r"\b([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d)(?: [A-Z]{3,4})? (\d{4})\b")
_RANDOM = re.compile(
    r"/tmp/tmp(?:\.\w{10}|[a-z0-9_]{8})\b|\b[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\b"
)
_MONTHS = {
    name: number
    for number, name in enumerate(
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"], 1
    )
}


def shown(look: Look, result: ToolResult) -> str:
    """What a result that has just come shows its call to have looked at: "clock", "randomness", or ""."""
    text = result.output
    if _RANDOM.search(text) and "/tmp/tmp" in text:
        return "randomness"
    if look.strict == "times":  # it lists the times of files; they may well be of now
        return ""
    now = time.time()
    begun = now - result.duration
    return "clock" if any(begun - _SLACK <= when <= now + _SLACK for when in _times(text)) else ""


def _times(text: str) -> Iterator[float]:
    """The points in time that a text names to the second, in local time and in UTC."""
    for found in _EPOCH.finditer(text):
        yield float(found[0][:10])
    for found in _STAMP.finditer(text):
        yield from _both(*map(int, found.groups()))
    for found in _DATE.finditer(text):
        month = _MONTHS.get(found[1])
        if month is not None:
            yield from _both(int(found[6]), month, *map(int, found.groups()[1:5]))


def _both(year: int, month: int, day: int, hour: int, minute: int, second: int) -> Iterator[float]:
    try:
        when = datetime(year, month, day, hour, minute, second)
    except ValueError:
        return
    yield when.replace(tzinfo=UTC).timestamp()
    yield when.timestamp()


# What differs between two runs of one thing without meaning anything: how long it took, and where in memory. Times of
# day only where they are close to when the call was made, which both results say of themselves.
_NOISE = re.compile(
    r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)?"
    r"|\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\s+\d{1,2}\s+(?:\d\d:\d\d|\d{4})"
    r"|\b\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?\b"
    r"|\b\d+(?:\.\d+)?\s*(?:ns|us|µs|ms|s|sec|secs|seconds)\b"
    r"|\b\d+m\d+\.\d+s\b"
    r"|\b0x[0-9a-f]{4,}\b"
    r"|={3,}"  # of pytest: as long as what stands between leaves room
)


def agree(recorded: ToolResult, replayed: ToolResult) -> bool:
    """Whether a replay gave what the record says: but for times, durations and addresses, and the order of lines.

    The order in which directories list their entries depends on which layer of the file system they lie in.
    """
    if (recorded.exit_code, recorded.exit_reason) != (replayed.exit_code, replayed.exit_reason):
        return False
    if recorded.output == replayed.output:
        return True
    ours, theirs = _NOISE.sub("*", recorded.output), _NOISE.sub("*", replayed.output)
    return ours == theirs or sorted(ours.split("\n")) == sorted(theirs.split("\n"))
