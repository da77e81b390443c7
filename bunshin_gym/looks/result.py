"""What the result of a call tells: what it has looked at, and whether two results are of the same call in one state."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from bunshin_gym.frozen import NOTHING_GIVEN, Given
from bunshin_gym.looks.look import NOTHING, Look
from bunshin_gym.tools.call import ToolResult

__all__ = ["agree", "shown"]

_SLACK = 1.5  # seconds between what a program calls now and what we do
_RECENT = 3600.0  # from when on a time in a replay's output may be one of the replay itself

_MONTHS = {
    name: number
    for number, name in enumerate(
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"], 1
    )
}
_EPOCH = re.compile(r"(?<![\d.])1[6-9]\d{8}(?:\.\d+|\d{3}|\d{6}|\d{9})?(?!\d)")
_STAMP = re.compile(
    r"\b(\d{4})[-/](\d\d)[-/](\d\d)[T _](\d\d)[:.](\d\d)(?:[:.](\d\d))?(?:[.,]\d+)?(?: ?(Z|UTC|GMT|[+-]\d\d:?\d\d)\b)?"
)
# Of mail, web servers and their logs; and what programs name files after.
_DAY_FIRST = re.compile(
    r"\b(\d{1,2})[ /-]([A-Z][a-z]{2})[ /-](\d{4})[ :](\d\d):(\d\d)(?::(\d\d))?(?: ?(UTC|GMT|[+-]\d\d:?\d\d)\b)?"
)
_COMPACT = re.compile(r"(?<!\d)(20\d\d)(\d\d)(\d\d)[_T-]?(\d\d)(\d\d)(\d\d)(?!\d)")
_DATE = re.compile(r"\b([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d)(?::(\d\d))?(?: [A-Z]{3,4})?(?: (\d{4}))?\b")
_PID = re.compile(r"\b(?:pid|PID)\b[ :=#]{1,3}\d{2,}\b")
_RANDOM = re.compile(r"/tmp/tmp(?:\.\w{10}|[a-z0-9_]{8})\b")
# Lines that list the times of files: of ls -l, of stat, and the heads of a unified diff.
_OF_FILES = re.compile(
    r"(?m)^(?:\s*\d+ +)?(?:\d+ +)?[-dlbcps][-rwxsStT]{9}.*$|^ *(?:Access|Modify|Change|Birth): .*$|^(?:---|\+\+\+) .*$"
)


def shown(look: Look, result: ToolResult, given: Given = NOTHING_GIVEN) -> str:
    """What a result that has just come shows its call to have looked at: "clock", "randomness", "process ids", or "".

    A time counts if it is one of while the call ran, by the zone that it names, or else by UTC or this machine's zone;
    also where the clock is frozen, unless it is the one that the clock shows: what shows it has not taken it. Drawn
    names are no sign where randomness is seeded.
    """
    text = result.output
    if "randomness" not in given and _RANDOM.search(text):
        return "randomness"
    if _PID.search(text):
        return "process ids"
    if look.strict == "times":  # the times of files may well be of now
        text = _OF_FILES.sub("", text)
    now = time.time()
    begun = now - result.duration
    exact = (when for found in _instants(text) if found[1] and given.instant not in found[0] for when in found[0])
    return "clock" if any(begun - _SLACK <= when <= now + _SLACK for when in exact) else ""


def _instants(text: str) -> Iterator[tuple[tuple[float, ...], bool]]:
    """The points in time that a text names: what each may mean (in local time, in UTC), and whether to the second."""
    for found in _EPOCH.finditer(text):
        yield (float(found[0][:10]),), True
    for found in _STAMP.finditer(text):
        year, month, day, hour, minute = map(int, found.groups()[:5])
        yield _meanings(year, month, day, hour, minute, int(found[6] or 0), found[7]), found[6] is not None
    for found in _DAY_FIRST.finditer(text):
        if found[2] in _MONTHS:
            day, year, hour, minute = int(found[1]), int(found[3]), int(found[4]), int(found[5])
            meant = _meanings(year, _MONTHS[found[2]], day, hour, minute, int(found[6] or 0), found[7])
            yield meant, found[6] is not None
    for found in _COMPACT.finditer(text):
        year, month, day, hour, minute, second = map(int, found.groups())
        yield _meanings(year, month, day, hour, minute, second), True
    for found in _DATE.finditer(text):
        if found[1] in _MONTHS:
            year = int(found[6]) if found[6] else datetime.now().year
            day, hour, minute = map(int, found.groups()[1:4])
            yield _meanings(year, _MONTHS[found[1]], day, hour, minute, int(found[5] or 0)), found[5] is not None


def _meanings(
    year: int, month: int, day: int, hour: int, minute: int, second: int, zone: str | None = None
) -> tuple[float, ...]:
    try:
        when = datetime(year, month, day, hour, minute, second)
    except ValueError:
        return ()
    if zone is not None:
        east = 0 if zone[0] in "ZUG" else int(zone[0] + "1") * (int(zone[1:3]) * 3600 + int(zone[-2:]) * 60)
        return (when.replace(tzinfo=UTC).timestamp() - east,)
    return (when.replace(tzinfo=UTC).timestamp(), when.timestamp())


_OF_A_TIME = (_STAMP, _DATE, _DAY_FIRST, _COMPACT, _EPOCH)
# What may differ between two runs of one thing: how long it took, where in memory, and times of now.
_NOISE = re.compile(
    r"(?P<duration>\b\d+\.\d+ ?(?:ns|us|µs|ms|s|sec|secs|seconds)\b|\b\d+ ?(?:ns|us|µs|ms|secs|seconds)\b"
    r"|\b\d+m\d+\.\d+s\b|\bin \d+(?:\.\d+)? ?s\b)"
    r"|(?P<address>\b0x[0-9a-f]{6,}\b)"
    r"|(?P<time>" + "|".join(re.sub(r"\((?!\?)", "(?:", part.pattern) for part in _OF_A_TIME) + ")"
    r"|(?P<day>\b\d{4}-\d\d-\d\d\b|\b[A-Z][a-z]{2} +\d{1,2}, \d{4}\b)"
    r"|(?P<clock>\b\d{1,2}:\d\d:\d\d(?:[.,]\d+)?\b|\b\d\d:\d\d\b)"
    r"|(?P<rule>={3,})"  # of pytest: as long as what stands between leaves room
)

# Inode numbers, of calls that can show some: a file made again has another one. Named, or alone; and of ls -i.
_NAMED_INODE = re.compile(r"(?<=Inode: )\d+|(?<=st_ino=)\d+|(?m:^\s*\d{5,}(?=\s|$))")
_INODE = re.compile(_NAMED_INODE.pattern + r"|(?m:^\s*\d+(?= ))")


def agree(recorded: ToolResult, again: ToolResult, look: Look = NOTHING) -> bool:
    """Whether a call that has just been made again gave what the record says.

    But for durations, addresses, and times of now: a time or date that differs must be one of this very hour or day the
    second time; and for inode numbers, where the call's `look` is at what the digest of a state leaves out. The order
    of lines counts, unless the `look` is `unordered`.
    """
    if (recorded.exit_code, recorded.exit_reason) != (again.exit_code, again.exit_reason):
        return False
    if recorded.output == again.output:
        return True
    now = time.time()
    inodes = {"inodes": _INODE, "times": _NAMED_INODE}.get(look.strict)
    first, second = (inodes.sub("#", text) if inodes else text for text in (recorded.output, again.output))
    ours, theirs = first.split("\n"), second.split("\n")
    if len(ours) == len(theirs) and all(_alike(a, b, now) for a, b in zip(ours, theirs, strict=True)):
        return True
    return look.unordered and sorted(map(_plain, ours)) == sorted(map(_plain, theirs))


def _alike(recorded: str, again: str, now: float) -> bool:
    if recorded == again:
        return True
    ours, theirs = list(_NOISE.finditer(recorded)), list(_NOISE.finditer(again))
    if _plain(recorded) != _plain(again) or len(ours) != len(theirs):
        return False
    return all(
        a[0] == b[0] or (a.lastgroup == b.lastgroup and _excused(b.lastgroup or "", b[0], now))
        for a, b in zip(ours, theirs, strict=True)
    )


def _plain(line: str) -> str:
    return _NOISE.sub("*", line)


def _excused(kind: str, text: str, now: float) -> bool:
    """Whether something in the second output may differ from the first, being what it is."""
    if kind in ("duration", "address", "rule"):
        return True
    if kind == "time":
        return any(now - _RECENT <= when <= now + 60 for found, _ in _instants(text) for when in found)
    moments = [datetime.fromtimestamp(now - ago) for ago in (0.0, _RECENT)]
    moments += [datetime.fromtimestamp(now - ago, UTC).replace(tzinfo=None) for ago in (0.0, _RECENT)]
    if kind == "day":
        return any(text in (f"{at:%Y-%m-%d}", f"{at:%b} {at.day}, {at.year}") for at in moments)
    hour, minute = map(int, text.split(":")[:2])
    if hour > 23 or minute > 59:
        return False
    for at in moments[::2]:  # local, and UTC
        then = at.replace(hour=hour, minute=minute)
        if any(-_RECENT <= (then + timedelta(days=days) - at).total_seconds() <= 60 for days in (-1, 0)):
            return True
    return False
