"""A line to be drawn in a paint program, and saved."""

from __future__ import annotations

import struct
import zlib

from bunshin_gym.desktop.tasks import launch
from bunshin_gym.envs import _judge
from bunshin_gym.envs.desktop._actions import WAIT, do, keys
from bunshin_gym.task import Task
from bunshin_gym.workspace import Workspace

PATH = "/work/map.png"
WIDTH, HEIGHT = 300, 200
MARGIN = 20  # a line that begins and ends so close to the edges crosses the picture

INSTRUCTION = f"""\
The paint program shows {PATH}, a white picture of {WIDTH} x {HEIGHT} pixels. With the brush, draw one line across it,
from near its left edge to near its right edge, in any colour but white, and save it under the same name. Submit when
you are done."""


def white(width: int, height: int) -> bytes:
    """A white PNG of 8 bits a channel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + b"\xff" * (3 * width)) * height
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    packed = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + packed


def ink(data: bytes) -> list[list[bool]] | None:
    """Which pixels of a PNG of 8 bits a channel, without interlacing, are not white; None where it is none."""
    try:
        return _ink(data)
    except (struct.error, zlib.error, IndexError, KeyError):
        return None


def _ink(data: bytes) -> list[list[bool]] | None:
    chunks: dict[bytes, bytes] = {}
    at = 8
    while at + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        chunks[kind] = chunks.get(kind, b"") + data[at + 8 : at + 8 + length]
        at += 12 + length
    width, height, depth, colour, _, _, interlace = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    if (width, height) != (WIDTH, HEIGHT) or depth != 8 or interlace:
        return None
    inflate = zlib.decompressobj()
    size = width * channels
    raw = inflate.decompress(chunks[b"IDAT"], (size + 1) * height)
    above, rows = bytes(size), []
    for y in range(height):
        row = _unfilter(raw[y * (size + 1)], bytearray(raw[y * (size + 1) + 1 : (y + 1) * (size + 1)]), above, channels)
        rows.append([_is_ink(row[x * channels : (x + 1) * channels], colour, chunks) for x in range(width)])
        above = bytes(row)
    return rows


def _is_ink(pixel: bytes | bytearray, colour: int, chunks: dict[bytes, bytes]) -> bool:
    if colour == 3:
        pixel = chunks[b"PLTE"][3 * pixel[0] : 3 * pixel[0] + 3]
    parts = 1 if colour in (0, 4) else 3
    return min(pixel[:parts]) < 0xF0


def _unfilter(kind: int, row: bytearray, above: bytes, step: int) -> bytearray:
    for i in range(len(row)):
        left = row[i - step] if i >= step else 0
        corner = above[i - step] if i >= step else 0
        if kind == 1:
            guess = left
        elif kind == 2:
            guess = above[i]
        elif kind == 3:
            guess = (left + above[i]) // 2
        elif kind == 4:
            total = left + above[i] - corner
            guess = min((left, above[i], corner), key=lambda value: abs(total - value))
        else:
            return row
        row[i] = (row[i] + guess) & 0xFF
    return row


def crosses(rows: list[list[bool]]) -> bool:
    """Whether one connected stroke leads from edge to edge, and it is a stroke, not a filled picture."""
    painted = {(x, y) for y, row in enumerate(rows) for x, dark in enumerate(row) if dark}
    if len(painted) > WIDTH * HEIGHT // 10:
        return False
    reached = {(x, y) for x, y in painted if x < MARGIN}
    edge = list(reached)
    while edge:
        x, y = edge.pop()
        for near in ((x + i, y + j) for i in (-1, 0, 1) for j in (-1, 0, 1)):
            if near in painted and near not in reached:
                reached.add(near)
                edge.append(near)
    return any(x >= WIDTH - MARGIN for x, _ in reached)


def verify(ws: Workspace) -> float:
    """1.0 where the saved picture has one line across it."""
    data = _judge.read(ws, PATH)
    rows = ink(data) if data is not None and len(data) < 1 << 20 else None
    return float(rows is not None and crosses(rows))


# Where the picture lies on a screen of 1024 x 768, with the program's window where it first comes up.
LEFT, TOP = 211, 160


def line(*points: tuple[int, int]) -> str:
    return do("drag", path=[{"x": LEFT + x, "y": TOP + y} for x, y in points])


# The settings lie above the brush: aside with them.
BRUSH = (do("drag", path=[{"x": 120, "y": 9}, {"x": 850, "y": 500}]), do("click", x=18, y=99))
SAVE = (keys("CTRL", "S"), WAIT, keys("ENTER"), WAIT)
WRONG = {
    "not saved": (
        *BRUSH,
        line((5, 100), (295, 120)),
    ),
    "half a line": (*BRUSH, line((5, 100), (150, 120)), *SAVE),
    "two halves": (*BRUSH, line((5, 50), (140, 50)), line((160, 150), (295, 150)), *SAVE),
    "only a selection": (line((5, 100), (295, 120)), *SAVE),
}

DRAWING = Task(
    name="desktop_drawing",
    instruction=INSTRUCTION,
    files={PATH: white(WIDTH, HEIGHT)},
    setup=(launch(f"mtpaint {PATH}", "map.png"),),
    verifier=verify,
    step_limit=24,
    solution=(*BRUSH, line((5, 100), (150, 60), (295, 120)), *SAVE),
    wrong=WRONG["half a line"],
)
