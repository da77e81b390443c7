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
_SIZE = (660, 560)


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


# Where the stroke goes on in each child, and what it says of it.
_WAYS = (
    ("a house", [(300, 330), (400, 330), (400, 250), (350, 200), (300, 250)]),
    ("a stair", [(340, 250), (340, 280), (380, 280), (380, 310), (420, 310), (420, 340)]),
    ("a wave", [(330, 310), (360, 230), (390, 310), (420, 230), (450, 310)]),
    ("nothing yet", [(310, 252)]),
)


def main(path: str) -> None:
    """Write the picture of four children to `path`."""
    with Workspace(separate_stderr=False, call_timeout=60.0) as workspace:
        desktop = Desktop.start(workspace, _SIZE)
        desktop.launch("xterm -geometry 44x5+4+440", "xterm")
        desktop.launch("mtpaint", "mtpaint 3")
        desktop.settle(0.3, 10.0)
        desktop.use("drag", path=[{"x": 120, "y": 9}, {"x": 540, "y": 440}])  # the settings, aside
        desktop.use("click", x=18, y=99)  # the brush
        desktop.use("move", x=300, y=170)
        desktop.use("mouse_down")
        desktop.use("move", x=300, y=250)
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
                    fork.use("click", x=200, y=530)
                    fork.use("type", text=f"echo {text}\n")
                    fork.settle(0.2, 5.0)
                    pictures.append(fork.screenshot())
        Path(path).write_bytes(png(side_by_side(pictures)))


if __name__ == "__main__":
    main(sys.argv[1])
