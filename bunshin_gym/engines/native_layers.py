"""The directories that workspaces of the native engine write into: counted, sealed, merged, removed.

A layer has one part a mount point. It is the upper layer of one workspace, then sealed below others; it is removed when
neither a workspace nor a snapshot uses it.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bunshin_gym._native import Context, NativeFailure, encode_records

if TYPE_CHECKING:
    from bunshin_gym.engines.native import NativeEngine
    from bunshin_gym.image import MountPoint

__all__ = ["Layer", "Merge"]

# Every seal adds a layer, and every lookup of an absent name asks them all: beyond this many they are merged.
DEPTH = 16


class Layer:
    """A directory with one part a mount point: the upper layer of a workspace, or a sealed one below others."""

    def __init__(
        self, context: Context, path: Path, keys: Sequence[str], work: bool, *, borrowed: bool = False
    ) -> None:
        self.path = path
        self._borrowed = borrowed  # it lies in a saved snapshot, which stays
        self._context = context
        self._count = 1
        self._lock = threading.Lock()
        # Once sealed: by mount, what it and all below it hold against the image, as state digests have it.
        self.sums: dict[str, tuple[str, str]] = {}
        for key in keys:
            (path / key).mkdir(parents=True)
            if work:
                (path / f"{key}.work").mkdir()

    def hold(self) -> Layer:
        with self._lock:
            self._count += 1
        return self

    def drop(self) -> None:
        with self._lock:
            self._count -= 1
            if self._count or self._borrowed:
                return
        with contextlib.suppress(NativeFailure):  # the owner is ending: the keeper removes the whole state directory
            self._context.remove(str(self.path))

    def part(self, key: str) -> str | None:
        """The part for a mount point, or None where nothing was written there."""
        path = self.path / key
        with os.scandir(path) as entries:
            return str(path) if any(True for _ in entries) else None


class LayerPool:
    """Fresh layers, a few of them made ahead: on some file systems making the directories is a good part of a fork."""

    AHEAD = 4

    def __init__(self, context: Context, directory: Path) -> None:
        self._context = context
        self._directory = directory
        self._count = 0
        self._lock = threading.Lock()
        self._spare: dict[tuple[str, ...], list[Layer]] = {}
        self._wanted: set[tuple[str, ...]] = set()
        self._wake = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._refill, name="bunshin-layers", daemon=True)
        self._thread.start()

    def new_path(self) -> Path:
        """A place for a layer that nobody has."""
        with self._lock:
            self._count += 1
            return self._directory / str(self._count)

    def make(self, keys: tuple[str, ...]) -> Layer:
        """A fresh layer with a part for each of these mount points."""
        with self._lock:
            spare = self._spare.get(keys)
            layer = spare.pop() if spare else None
            self._wanted.add(keys)
        self._wake.set()
        return layer or Layer(self._context, self.new_path(), keys, work=True)

    def _refill(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            if self._closed:
                return
            for keys in list(self._wanted):
                while len(self._spare.get(keys, ())) < self.AHEAD and not self._closed:
                    try:
                        layer = Layer(self._context, self.new_path(), keys, work=True)
                    except OSError:
                        break  # whoever needs one meets the same error, and can tell of it
                    with self._lock:
                        self._spare.setdefault(keys, []).append(layer)

    def close(self) -> None:
        """Stop making layers; those made ahead go with the state directory."""
        self._closed = True
        self._wake.set()
        self._thread.join(timeout=5)


class Merge:
    """Several sealed layers becoming one, in the background. They stay as they are for those who use them."""

    def __init__(self, engine: NativeEngine, mounts: Sequence[MountPoint], layers: tuple[Layer, ...]) -> None:
        self._layers = tuple(layer.hold() for layer in layers)
        self._merged = engine.new_layer(mounts, work=False)
        self._failed = False
        records = []
        for point in mounts:
            if point.writable and (parts := [part for layer in layers if (part := layer.part(point.key))]):
                records.append((str(self._merged.path / point.key), *parts))
        self._thread = threading.Thread(target=self._run, args=(engine.context(), encode_records(records)), daemon=True)
        self._thread.start()

    @classmethod
    def start(cls, engine: NativeEngine, mounts: Sequence[MountPoint], layers: tuple[Layer, ...]) -> Merge | None:
        """A merge of these layers, if they are many enough."""
        return cls(engine, mounts, layers) if len(layers) > DEPTH else None

    def _run(self, context: Context, blob: bytes) -> None:
        try:
            context.merge(blob)
        except NativeFailure:
            self._failed = True  # the layers stay many: slower, not wrong

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def take(self, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
        """The same files as `layers`, with fewer layers where the merge is finished."""
        count = len(self._layers)
        if not self.done or self._failed or layers[-count:] != self._layers:
            return layers
        self._merged.sums.update(self._layers[0].sums)
        return (*layers[:-count], self._merged)

    def close(self) -> None:
        self._thread.join()
        for layer in (*self._layers, self._merged):
            layer.drop()
