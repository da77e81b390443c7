"""The state digest of a native workspace: what its pid 1 tells (native/src/digest/), put together and remembered.

The sum of sealed layers is fixed, so whichever workspace finds it out first tells all others: it is kept on the topmost
of those layers, for that layer and everything below it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bunshin_gym._native import NativeFailure, WorkspaceHandle, encode_records
from bunshin_gym.engines.native_results import public_error
from bunshin_gym.state import StateDigest, combine

if TYPE_CHECKING:
    from bunshin_gym.engines.native_layers import Layer
    from bunshin_gym.image import MountPoint

__all__ = ["digest"]

SEAL_ADVISED = 1000
"""Entries of the top layer from which a snapshot would make the next digests cheaper: each is looked at every time."""


def digest(
    handle: WorkspaceHandle, mounts: Sequence[MountPoint], sealed: Sequence[Layer], origin: bytes
) -> tuple[StateDigest, dict[str, tuple[str, str]]]:
    """The digest of the workspace on these sealed layers (newest first), and the sums of its files by mount.

    The sums are what the top layer's will be once it is sealed, if nothing is written before; empty where somebody
    could be writing. Raises WorkspaceError, WorkspaceBusy.
    """
    began = time.perf_counter()
    stacks = {point.path.rstrip("/") + "/": _stack(point, sealed) for point in mounts if point.writable}
    records: list[tuple[str, ...]] = [("origin", combine(origin, b"0").hex() + combine(origin, b"1").hex())]
    for mount, layers in stacks.items():
        known = next((i for i, layer in enumerate(layers) if mount in layer.sums), None)
        if known is not None:
            records.append(("sealed", mount, str(len(layers) - known), *layers[known].sums[mount]))
    try:
        lines = handle.digest(encode_records(records)).splitlines()
    except NativeFailure as failure:
        raise public_error(failure) from failure
    loose: list[bytes] = []
    strict: list[bytes] = []
    parts: dict[str, bytes] = {}
    sums: dict[str, tuple[str, str]] = {}
    unique = ""
    changed = 0
    for line in lines:
        name, _, rest = line.partition(" ")
        if name in ("files", "sealed", "memory"):
            without, with_times, number, mount = rest.split(" ", 3)
            if name == "sealed":
                if stacks.get(mount):
                    stacks[mount][0].sums[mount] = (without, with_times)
                continue
            if name == "files":
                sums[mount] = (without, with_times)
            changed += int(number)
            loose.append(_part(parts, f"{name} {mount}", without))
            strict.append(_part(parts, f"times {mount}", with_times))
        elif name == "unique":
            unique = rest
        else:
            loose.append(_part(parts, name if name != "root" else f"root {rest.rpartition(' ')[2]}", rest))
            if name == "by-history":
                loose.append(origin)
    whole = combine(*loose)
    milliseconds = (time.perf_counter() - began) * 1e3
    result = StateDigest(whole, combine(whole, *strict), unique, milliseconds, changed >= SEAL_ADVISED, parts)
    return result, sums if not unique else {}


def _stack(point: MountPoint, sealed: Sequence[Layer]) -> list[Layer]:
    """The sealed layers that hold something of a mount point: the ones its overlay was given."""
    return [layer for layer in sealed if layer.part(point.key)]


def _part(parts: dict[str, bytes], name: str, text: str) -> bytes:
    parts[name] = combine(name.encode(), text.encode())
    return parts[name]
