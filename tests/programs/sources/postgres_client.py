"""The little of PostgreSQL's protocol that the test speaks (version 3, simple queries, no password)."""

import socket
import struct


class Client:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.socket.settimeout(30)
        self.input = self.socket.makefile("rb")
        self.notes = []
        words = b"user\0postgres\0database\0postgres\0\0"
        self.socket.sendall(struct.pack("!II", len(words) + 8, 196608) + words)
        self.answer()

    def send(self, query):
        data = query.encode() + b"\0"
        self.socket.sendall(b"Q" + struct.pack("!I", len(data) + 4) + data)

    def message(self):
        kind = self.input.read(1)
        (length,) = struct.unpack("!I", self.input.read(4))
        return kind, self.input.read(length - 4)

    def answer(self):
        """Rows until the server is ready; what it notified of is kept apart; an error raises."""
        rows, trouble = [], None
        while True:
            kind, data = self.message()
            if kind == b"D":
                (count,) = struct.unpack("!H", data[:2])
                at, row = 2, []
                for _ in range(count):
                    (length,) = struct.unpack("!i", data[at : at + 4])
                    at += 4
                    row.append(None if length < 0 else data[at : at + length].decode())
                    at += max(length, 0)
                rows.append(tuple(row))
            elif kind == b"E":
                trouble = data.replace(b"\0", b" ").decode()
            elif kind == b"A":
                self.notes.append(tuple(part.decode() for part in data[4:].split(b"\0")[:2]))
            elif kind == b"Z":
                if trouble:
                    raise RuntimeError(trouble)
                return rows

    def ask(self, query):
        self.send(query)
        return self.answer()
