"""A call tree as lines of text: which calls rollouts shared, where they parted, what was run and what it took."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from bunshin_gym.branch import Branch

__all__ = ["clipped", "columns", "draw", "printable"]

_BOLD, _DIM, _RED, _GREEN, _CYAN, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[36m", "\x1b[0m"
# What a terminal would obey, or would not show: controls, direction marks and other format characters, lone surrogates.
_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
_LEAST = 24  # columns that a call is given, however deep it is: the lines that lead there are cut instead


def draw(tree: Branch, *, width: int = 100, colour: bool = True) -> str:
    """The tree as lines of at most `width` columns: how many rollouts, the call, what it took, how it ended."""
    width = max(width, _LEAST)
    about = [*([f"{tree.rollouts} rollouts"] if tree.rollouts else []), *_marks(tree)]
    room = max(4, width - 2 - columns(", ".join(about)))
    name = clipped(printable(tree.call), room)
    told = clipped(", ".join(about), max(4, width - columns(name) - 2))
    head = _paint(name, _BOLD, colour) + (f"  {told}" if told else "")
    return "\n".join([head, *_lines(tree, width, colour)])


def _lines(tree: Branch, width: int, colour: bool) -> Iterator[str]:
    # A chain that nobody leaves is drawn straight down; only a parting indents. Deep trees are ordinary: no recursion.
    waiting: list[tuple[Branch | str, str, str]] = []  # what is to be drawn, what leads to it, and what leads on below

    def push(branch: Branch, indent: str) -> None:
        entries: list[Branch | str] = [*branch.children, *branch.ends]
        for number, entry in reversed(list(enumerate(entries))):
            last = number == len(entries) - 1
            if len(entries) == 1 and isinstance(entry, Branch):
                waiting.append((entry, indent + "├─ ", indent))  # the chain goes on below
            else:
                waiting.append((entry, indent + ("└─ " if last else "├─ "), indent + ("   " if last else "│  ")))

    push(tree, "")
    while waiting:
        entry, lead, below = waiting.pop()
        most = max(3, width - _LEAST)
        lead = lead if len(lead) <= most else "…" + lead[len(lead) - most + 1 :]
        room = width - len(lead)
        if isinstance(entry, str):
            yield lead + _paint(clipped(f"({printable(entry)})", room), _DIM, colour)
            continue
        yield lead + _line(entry, room, colour)
        push(entry, below)


def _line(branch: Branch, width: int, colour: bool) -> str:
    count = f"{branch.rollouts}x"
    tail = "  [" + ", ".join([time_of(branch.seconds), *_marks(branch)]) + "]"
    text = printable(" ".join(branch.call.split()))
    room = width - len(count) - 1
    if columns(tail) > room - min(columns(text), 12):
        tail = clipped(tail, max(0, room - min(columns(text), 12)))
    text = clipped(text, max(0, room - columns(tail)))
    shade = _RED if branch.exit_code else _GREEN if branch.rollouts > 1 else ""
    return f"{_paint(count, _CYAN, colour)} {_paint(text, shade, colour)}{_paint(tail, _DIM, colour)}"


def _marks(branch: Branch) -> Iterator[str]:
    """What is worth saying of a branch beside its time."""
    shared = branch.hits + branch.waits
    if branch.run > 1:
        yield f"run {branch.run} times"
    if shared:
        yield f"{shared} {'hit' if shared == 1 else 'hits'}"
    if branch.drafts:
        yield f"{branch.drafts} drafted"
    if branch.exit_reason:
        yield branch.exit_reason.replace("_", " ")
    elif branch.exit_code:
        yield f"exit {branch.exit_code}"
    if branch.snapshot or branch.snapshots:
        yield "snapshot"
    if branch.forks:
        yield f"{branch.forks} {'fork' if branch.forks == 1 else 'forks'}"
    if branch.private:
        yield "private"


def time_of(seconds: float) -> str:
    """A duration in the unit that suits it."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds:.0f} s"


def printable(text: str) -> str:
    """The text with every character that a terminal would obey, or hide, spelled out."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        f"\\x{ord(c):02x}" if ord(c) < 256 and unicodedata.category(c) in _UNSEEN
        else f"\\u{{{ord(c):x}}}" if unicodedata.category(c) in _UNSEEN
        else c
        for c in text
    )  # fmt: skip


def columns(text: str) -> int:
    """How many columns of a terminal the (printable) text takes."""
    if text.isascii():
        return len(text)
    return sum(_column(c) for c in text)


def clipped(text: str, width: int) -> str:
    """The text in at most `width` columns; what was cut ends in dots."""
    if columns(text) <= width:
        return text
    dots = "..."[: max(0, width)]
    kept, room = [], width - len(dots)
    for c in text:
        room -= _column(c)
        if room < 0:
            break
        kept.append(c)
    return "".join(kept) + dots


def _column(c: str) -> int:
    if unicodedata.combining(c) or unicodedata.category(c) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(c) in "WF" else 1


def _paint(text: str, shade: str, colour: bool) -> str:
    return f"{shade}{text}{_PLAIN}" if colour and shade and text else text
