"""What a workspace's state is, as a digest: what later calls can see, so that equal digests mean equal futures.

Two of them, since programs differ in what they can notice. `loose` is the files with their content, the logical state
of the shell, and the other live processes, but no times and no inode numbers; `strict` has those of what was changed as
well. What cannot be compared with another history (a process that ran, say) counts with a token of the call that it was
changed by: such states are equal only where the whole history is. docs/state-key.md lists what is left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["DIGEST_SIZE", "StateDigest", "combine"]

DIGEST_SIZE = 16
"""Bytes of a digest: BLAKE2b with a key of its own, the same on every machine."""


@dataclass(frozen=True)
class StateDigest:
    """The digest of one state. Equal where `loose` and `strict` are; the rest only tells about it.

    `loose`, `strict`: DIGEST_SIZE bytes each; equal strict ones have equal loose ones. `unique`: what of the state
    cannot be compared with other histories and therefore counts by history, or "". `milliseconds`: what asking took.
    `seal_advised`: so much was changed since the last snapshot that one now would make the next digests cheaper.
    `parts`: digests of the files, the shell and so on, to find out in what two states differ.
    """

    loose: bytes
    strict: bytes
    unique: str = field(default="", compare=False)
    milliseconds: float = field(default=0.0, compare=False)
    seal_advised: bool = field(default=False, compare=False)
    parts: Mapping[str, bytes] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("loose", "strict"):
            if len(getattr(self, name)) != DIGEST_SIZE:
                raise ValueError(f"{name} has {len(getattr(self, name))} bytes, not {DIGEST_SIZE}")

    def contradicts(self, parts: Mapping[str, bytes]) -> bool:
        """Whether it differs from another digest's `parts` in what can always be compared: the files and the shell.

        Of a call that was made again in the same state, the rest is what it was, whether or not that can be seen.
        """
        return any(name.partition(" ")[0] in _COMPARED for name in self.differing(parts))

    def differing(self, parts: Mapping[str, bytes]) -> list[str]:
        """The names of the parts in which it differs from another digest's."""
        return [name for name in {**self.parts, **parts} if self.parts.get(name) != parts.get(name)]


_COMPARED = ("files", "shell")


def combine(*parts: bytes) -> bytes:
    """The digest of a sequence of byte strings. Other strings, another order or other borders give another one."""
    whole = hashlib.blake2b(digest_size=DIGEST_SIZE, person=b"bunshin-state")
    for part in parts:
        whole.update(len(part).to_bytes(8, "little"))
        whole.update(part)
    return whole.digest()
