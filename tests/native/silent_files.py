"""A file system that answers until it is told not to: silent_files.py MOUNTPOINT. Lines of stdin: "silent", "answer".

It holds one file, "file", of a megabyte, and speaks the protocol of /dev/fuse itself. While it is silent, whoever asks
it for something waits, and once the question was taken, no signal ends that: the sleep that cannot be interrupted.
"""

from __future__ import annotations

import ctypes
import errno
import os
import selectors
import struct
import sys

LOOKUP, GETATTR, OPEN, READ, RELEASE, INIT, OPENDIR, READDIR = 1, 3, 14, 15, 18, 26, 27, 28
UNANSWERED = {2, 36, 42}  # forget, interrupt, batch forget
SIZE = 1 << 20
ROOT, FILE = 1, 2


def attributes(node: int) -> bytes:
    mode, size = (0o40755, 4096) if node == ROOT else (0o100644, SIZE)
    return struct.pack("<6Q10I", node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(kind: int, node: int, body: bytes) -> bytes | int:
    if kind == INIT:
        return struct.pack("<4I2H2I2HI7I", 7, 31, 1 << 17, 0, 12, 9, 1 << 17, 1, 32, 0, *[0] * 8)
    if kind == LOOKUP:
        if body.rstrip(b"\0") != b"file":
            return errno.ENOENT
        return struct.pack("<4Q2I", FILE, 0, 0, 0, 0, 0) + attributes(FILE)
    if kind == GETATTR:
        return struct.pack("<Q2I", 0, 0, 0) + attributes(node)
    if kind in (OPEN, OPENDIR):
        return struct.pack("<Q2I", 0, 0, 0)
    if kind == READ:
        _, offset, size = struct.unpack_from("<2QI", body)
        return b"s" * max(0, min(size, SIZE - offset))
    return b"" if kind in (RELEASE, READDIR) else errno.ENOSYS


def serve(device: int) -> None:
    watched = selectors.DefaultSelector()
    watched.register(device, selectors.EVENT_READ)
    watched.register(0, selectors.EVENT_READ)
    silent, waiting = False, list[bytes]()
    while True:
        for key, _ in watched.select():
            if key.fd == 0:
                word = os.read(0, 100).split()
                if not word:
                    return
                silent = word[-1] == b"silent"
                print("well", flush=True)
            else:
                try:
                    waiting.append(os.read(device, SIZE))
                except OSError as error:
                    if error.errno == errno.ENODEV:
                        return
        while waiting and not silent:
            asked = waiting.pop(0)
            _, kind, unique, node = struct.unpack_from("<2I2Q", asked)
            if kind in UNANSWERED:
                continue
            said = answer(kind, node, asked[40:])
            body, code = (said, 0) if isinstance(said, bytes) else (b"", -said)
            try:
                os.write(device, struct.pack("<IiQ", 16 + len(body), code, unique) + body)
            except OSError as error:
                if error.errno != errno.ENOENT:  # who asked is gone
                    raise


def main(place: str) -> None:
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()},allow_other"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"silent", place.encode(), b"fuse", 0, options.encode()) != 0:
        sys.exit(f"cannot mount: {os.strerror(ctypes.get_errno())}")
    print("mounted", flush=True)
    try:
        serve(device)
    finally:
        libc.umount2(place.encode(), 2)


if __name__ == "__main__":
    main(sys.argv[1])
