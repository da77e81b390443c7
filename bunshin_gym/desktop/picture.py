"""Pictures of screens: several side by side, and as a PNG file.

    python -m bunshin_gym.desktop.picture FILE.png

draws four children of one desktop, each of which has gone on in its own way with an unfinished drawing and a text.
"""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bunshin_gym.desktop.display import Desktop
from bunshin_gym.workspace import Workspace

__all__ = ["png", "side_by_side"]

Picture = NDArray[np.uint8]
_GAP = 8
_SIZE = (560, 400)


def png(picture: Picture) -> bytes:
    """The PNG file of a picture: uint8, shape (height, width, 3)."""
    height, width, _ = picture.shape
    # The difference to the row above packs best where windows are mostly of one colour.
    above = np.zeros_like(picture)
    above[1:] = picture[:-1]
    rows = np.concatenate([np.full((height, 1), 2, np.uint8), (picture - above).reshape(height, -1)], axis=1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows.tobytes(), 9))
        + chunk(b"IEND", b"")
    )


def side_by_side(pictures: Sequence[Picture], columns: int = 2) -> Picture:
    """Pictures of one size in rows of `columns`, with white between them."""
    height, width, _ = pictures[0].shape
    rows = -(-len(pictures) // columns)
    whole = np.full((rows * (height + _GAP) - _GAP, columns * (width + _GAP) - _GAP, 3), 255, np.uint8)
    for number, picture in enumerate(pictures):
        y, x = number // columns * (height + _GAP), number % columns * (width + _GAP)
        whole[y : y + height, x : x + width] = picture
    return whole


_WAYS = (
    ("a circle it was to be", [(360, 250), (330, 300), (380, 330), (430, 300), (400, 250)]),
    ("or a stair", [(320, 250), (320, 280), (350, 280), (350, 310), (380, 310), (380, 340)]),
    ("it could be a wave", [(330, 300), (360, 250), (390, 320), (420, 250), (450, 320)]),
    ("and this one stopped here", [(345, 240)]),
)


def main(path: str) -> None:
    with Workspace(separate_stderr=False, call_timeout=60.0) as workspace:
        desktop = Desktop.start(workspace, _SIZE)
        desktop.launch("xterm -geometry 66x5+4+280", "xterm")
        desktop.launch("mtpaint", "mtpaint 3")
        desktop.settle(0.3, 10.0)
        desktop.use("drag", path=[{"x": 120, "y": 9}, {"x": 330, "y": 380}])
        desktop.use("click", x=18, y=99)
        desktop.use("move", x=300, y=200)
        desktop.use("mouse_down")
        desktop.use("drag", path=[{"x": 300, "y": 200}, {"x": 340, "y": 220}])
        pictures = []
        with workspace.snapshot() as snapshot:
            for (text, way), child in zip(_WAYS, snapshot.fork(len(_WAYS)), strict=True):
                if not isinstance(child, Workspace):
                    raise child
                with child:
                    fork = Desktop(child)
                    for x, y in way:
                        fork.use("move", x=x, y=y)
                    fork.use("mouse_up")
                    fork.use("click", x=200, y=390)
                    fork.use("type", text=f"echo {text}\n")
                    fork.settle(0.2, 5.0)
                    pictures.append(fork.screenshot())
        Path(path).write_bytes(png(side_by_side(pictures)))


if __name__ == "__main__":
    main(sys.argv[1])
