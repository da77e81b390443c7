"""Call trees in a file: results and digests of many roots, so that the next epoch or process starts warm.

    magic    b"bunshin-tree 1\\n": the format and its version
    head     uint64 (little-endian) its size, then JSON: for each root its name, stamp, digest, and the size of its part
    parts    one a root, in order: a Subtree as JSON, compressed with zlib
    digest   BLAKE2b-256 of all before

Nothing in it is code. A part is unpacked when its root is opened, so that a file costs what is used of it; the digest
is checked when the file is read, before anything of it is used. A file is replaced as a whole: whoever reads at that
moment has the old or the new one, and of two that write the last one stays.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bunshin_gym.errors import TreeFileError
from bunshin_gym.stamp import Stamp
from bunshin_gym.state import DIGEST_SIZE
from bunshin_gym.subtree import Subtree

__all__ = ["SavedRoot", "TreeFile", "is_tree_file"]

_FAMILY = b"bunshin-tree "
_MAGIC = _FAMILY + b"1\n"
_SUM = 32  # bytes of the digest at the end
_LEVEL = 1  # of zlib: three times as fast as the usual one, a tenth larger


@dataclass(frozen=True)
class SavedRoot:
    """A root, and all below it still packed. `loose`: the digest of the state that its workspaces begin in."""

    name: str
    stamp: Stamp
    loose: bytes
    steps: int
    states: int
    size: int  # bytes of the part, unpacked
    packed: bytes = field(repr=False)

    @classmethod
    def pack(cls, name: str, stamp: Stamp, loose: bytes, subtree: Subtree) -> SavedRoot:
        text = subtree.as_json()
        return cls(name, stamp, loose, len(subtree.steps), len(subtree.states), len(text), zlib.compress(text, _LEVEL))

    def unpack(self) -> Subtree:
        """What is below it. Raises ValueError where that is damaged."""
        inflate = zlib.decompressobj()
        try:
            text = inflate.decompress(self.packed, self.size + 1)
        except zlib.error as error:
            raise ValueError(str(error)) from error
        if len(text) != self.size or not inflate.eof or inflate.unused_data:
            raise ValueError(f"the part of {self.name!r} has not the {self.size} bytes that it should have")
        return Subtree.from_json(text)

    def head(self) -> dict[str, Any]:
        return {
            "name": self.name, "parts": dict(self.stamp.parts), "verifier": self.stamp.verifier,
            "loose": self.loose.hex(), "steps": self.steps, "states": self.states, "size": self.size,
            "packed": len(self.packed),
        }  # fmt: skip


@dataclass
class TreeFile:
    """The roots of a file by name. `path`: where it was read, for errors."""

    roots: dict[str, SavedRoot] = field(default_factory=dict)
    path: Path | None = None

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> TreeFile:
        """The file at `path`. Raises TreeFileError where it cannot be read, is damaged, or is of another version."""
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise TreeFileError(f"cannot read the call tree {path}: {error.strerror}") from error
        try:
            return cls(_roots(data), Path(path))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise TreeFileError(f"cannot use the call tree {path}: {error}") from error

    @classmethod
    def read_if_there(cls, path: str | os.PathLike[str]) -> TreeFile:
        """The same; an empty one where there is no such file."""
        return cls.read(path) if os.path.lexists(path) else cls({}, Path(path))

    def write(self, path: str | os.PathLike[str]) -> None:
        """Put it at `path`, in place of what is there. Raises TreeFileError, and leaves that untouched then."""
        head = json.dumps([root.head() for root in self.roots.values()], allow_nan=False).encode()
        parts = [_MAGIC, len(head).to_bytes(8, "little"), head, *(root.packed for root in self.roots.values())]
        whole = hashlib.blake2b(digest_size=_SUM)
        for part in parts:
            whole.update(part)
        try:
            _replace(Path(path), [*parts, whole.digest()])
        except OSError as error:
            raise TreeFileError(f"cannot write the call tree {path}: {error.strerror}") from error


def is_tree_file(path: str | os.PathLike[str]) -> bool:
    """Whether a file says of itself that it is one. Raises OSError."""
    with open(path, "rb") as file:
        return file.read(len(_FAMILY)) == _FAMILY


def _roots(data: bytes) -> dict[str, SavedRoot]:
    if not data.startswith(_FAMILY):
        raise ValueError("it is no call tree of bunshin")
    if not data.startswith(_MAGIC):
        found = data[len(_FAMILY) : len(_FAMILY) + 8].partition(b"\n")[0].decode(errors="replace")
        raise ValueError(f"it is of format {found!r}, and this version reads {_MAGIC[len(_FAMILY) : -1].decode()!r}")
    start, end = len(_MAGIC) + 8, len(data) - _SUM
    if end < start or hashlib.blake2b(data[:end], digest_size=_SUM).digest() != data[end:]:
        raise ValueError("it is damaged: its content does not have the digest that it ends with")
    at = start + int.from_bytes(data[len(_MAGIC) : start], "little")
    roots = {}
    for head in json.loads(data[start:at]):
        packed = data[at : at + head["packed"]]
        at += head["packed"]
        roots[str(head["name"])] = _root(head, packed)
    if at != end:
        raise ValueError("it is damaged: its parts do not have the sizes that its head says")
    return roots


def _root(head: Mapping[str, Any], packed: bytes) -> SavedRoot:
    parts = {str(name): str(part) for name, part in head["parts"].items()}
    loose = bytes.fromhex(head["loose"])
    if len(loose) != DIGEST_SIZE or len(packed) != head["packed"] or not 0 <= head["size"] < 1 << 48:
        raise ValueError("it is damaged: a part of it has not the size that its head says")
    stamp = Stamp(parts, str(head["verifier"]))
    return SavedRoot(
        str(head["name"]), stamp, loose, int(head["steps"]), int(head["states"]), int(head["size"]), packed
    )


def _replace(path: Path, parts: list[bytes]) -> None:
    """Write a file beside `path` and give it that name once it is on the disk. Raises OSError, leaving nothing."""
    beside = path.parent / f".{path.name}.{secrets.token_hex(6)}"
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with open(fd, "wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(fd)
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # not every file system does that for a folder
            os.fsync(folder)
    finally:
        os.close(folder)
