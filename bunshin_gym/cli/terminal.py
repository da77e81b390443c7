"""What commands print: tables on stdout, and one line of progress on stderr where that is a terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

__all__ = ["Progress", "megabytes", "table"]


def megabytes(size: float) -> str:
    """Bytes as megabytes (10^6), with as many digits as matter."""
    value = size / 1e6
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def table(header: Sequence[str], rows: Sequence[Sequence[object]], *, left: Sequence[int] = (0,)) -> str:
    """Aligned columns. Those in `left` start at the left, all others (numbers) end at the right."""
    cells = [list(map(str, row)) for row in (header, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]

    def line(row: Sequence[str]) -> str:
        fields = (
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join(fields).rstrip()

    return "\n".join([line(cells[0]), line(["-" * width for width in widths]), *map(line, cells[1:])])


class Progress:
    """A line that is rewritten in place: what is being done, and how far it has come. Safe from any thread."""

    def __init__(self, quiet: bool = False) -> None:
        self._shown = not quiet and sys.stderr.isatty()
        self._lock = threading.Lock()
        self._what = ""
        self._done = 0
        self._total = 0
        self._drawn = 0.0

    def start(self, what: str, total: int = 0) -> None:
        """Something new begins, of `total` parts (0: not known)."""
        with self._lock:
            self._what, self._done, self._total = what, 0, total
            self._draw()

    def advance(self, _: object = None) -> None:
        """One part is done. Takes an argument, ignored, so that it can be a callback."""
        with self._lock:
            self._done += 1
            if time.monotonic() - self._drawn > 0.05:
                self._draw()

    def _draw(self) -> None:
        if self._shown:
            self._drawn = time.monotonic()
            count = f" {self._done}/{self._total}" if self._total else ""
            sys.stderr.write(f"\r\x1b[K{self._what}{count}")
            sys.stderr.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.clear()

    def clear(self) -> None:
        """Take the line away, so that something can be printed."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
