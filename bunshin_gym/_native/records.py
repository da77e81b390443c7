"""Records of strings, as native/src/common/records.h has them: a uint32 count, then that many NUL-ended strings."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence

__all__ = ["encode_records"]


def encode_records(records: Iterable[Sequence[str]]) -> bytes:
    """The blob of a list of records. Raises ValueError for a string with a NUL in it, which cannot be passed."""
    parts = []
    for record in records:
        parts.append(struct.pack("=I", len(record)))
        for text in record:
            if "\0" in text:
                raise ValueError(f"a NUL byte cannot be passed to a workspace: {record[0]} {text[:40]!r}")
            parts.append(os.fsencode(text) + b"\0")
    return b"".join(parts)
