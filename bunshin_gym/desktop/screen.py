"""The picture of a screen: the XWD file that Xvfb keeps of it, as an array."""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from bunshin_gym.errors import WorkspaceError

__all__ = ["read_picture"]

_HEADER = struct.Struct(">25I")  # Xvfb writes the header in network order on every machine
_COLOUR = 12  # bytes of an entry of the colour map, which lies between the header and the pixels
_ZPIXMAP, _LSB_FIRST = 2, 0


def read_picture(data: bytes) -> NDArray[np.uint8]:
    """uint8, shape (height, width, 3), from the bytes of an XWD file of 24 bits a pixel. Raises WorkspaceError."""
    if len(data) < _HEADER.size:
        raise WorkspaceError(f"cannot read the screen: its file has {len(data)} bytes")
    header = _HEADER.unpack_from(data)
    size, version, layout, depth, width, height = header[:6]
    byte_order, bits, row = header[7], header[11], header[12]
    masks, colours = header[14:17], header[19]
    if (version, layout, byte_order, bits) != (7, _ZPIXMAP, _LSB_FIRST, 32) or masks != (0xFF0000, 0xFF00, 0xFF):
        raise WorkspaceError(f"cannot read the screen: {depth} bits a pixel in an unknown order, not 24")
    start = size + colours * _COLOUR
    if len(data) < start + row * height:
        raise WorkspaceError(f"cannot read the screen: {len(data)} bytes are too few for {width} x {height} pixels")
    pixels = np.frombuffer(data, dtype=np.uint8, count=row * height, offset=start).reshape(height, row // 4, 4)
    picture = np.empty((height, width, 3), dtype=np.uint8)
    for channel in range(3):  # three strided copies take half the time of one that turns the bytes around
        picture[:, :, channel] = pixels[:, :width, 2 - channel]
    return picture
