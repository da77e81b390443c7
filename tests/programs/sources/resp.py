"""The little of redis's protocol that the test speaks."""

import socket


class Client:
    def __init__(self, path=None):
        if path:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(path)
        else:
            self.socket = socket.create_connection(("127.0.0.1", 6379))
        self.lines = self.socket.makefile("rb")

    def ask(self, *words):
        parts = [f"*{len(words)}\r\n".encode()]
        for word in words:
            parts.append(f"${len(word)}\r\n{word}\r\n".encode())
        self.socket.sendall(b"".join(parts))
        return self.read()

    def read(self):
        line = self.lines.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return self.lines.read(int(rest) + 2)[:-2] if rest != b"-1" else None
        if kind == b"*":
            return [self.read() for _ in range(int(rest))]
        raise AssertionError(f"redis says {line!r}")
