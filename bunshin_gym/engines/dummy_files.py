"""The dummy engine's files: a tree of immutable contents, so that a fork is one shallow copy."""

from __future__ import annotations

import errno
import os
import posixpath
import time

__all__ = ["Files"]

_START = ("/", "/bin", "/dev", "/etc", "/root", "/tmp", "/usr", "/var", "/var/tmp")


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


class Files:
    """Absolute normal paths to contents; a directory's content is None. Errors are OSErrors with errno and path."""

    def __init__(self, entries: dict[str, bytes | None] | None = None) -> None:
        self.entries: dict[str, bytes | None] = dict.fromkeys(_START) if entries is None else entries
        self.times: dict[str, int] = {}  # of the last change, ns; what was there from the start has none

    def fork(self) -> Files:
        """A copy that shares every content."""
        copy = Files(dict(self.entries))
        copy.times = dict(self.times)
        return copy

    def _changed(self, *paths: str) -> None:
        for path in paths:
            self.times[path] = time.time_ns()

    def exists(self, path: str) -> bool:
        return path in self.entries or path in ("/dev/null", "/dev/zero")

    def is_dir(self, path: str) -> bool:
        return path in self.entries and self.entries[path] is None

    def read(self, path: str) -> bytes:
        if path == "/dev/null":
            return b""
        if path not in self.entries:
            raise _error(errno.ENOENT, path)
        content = self.entries[path]
        if content is None:
            raise _error(errno.EISDIR, path)
        return content

    def write(self, path: str, content: bytes, *, parents: bool = False) -> None:
        if path == "/dev/null":
            return
        if self.is_dir(path):
            raise _error(errno.EISDIR, path)
        parent = posixpath.dirname(path)
        if parents:
            self.mkdir(parent, parents=True)
        if not self.is_dir(parent):
            raise _error(errno.ENOTDIR if parent in self.entries else errno.ENOENT, path)
        self._changed(*((path,) if path in self.entries else (path, parent)))
        self.entries[path] = content

    def touch(self, path: str) -> None:
        """Change the time of what is there."""
        if path in self.entries:
            self._changed(path)

    def mkdir(self, path: str, *, parents: bool = False) -> None:
        if parents and self.is_dir(path):
            return
        if path in self.entries:
            raise _error(errno.EEXIST, path)
        parent = posixpath.dirname(path)
        if not self.is_dir(parent):
            if not parents:
                raise _error(errno.ENOENT, path)
            self.mkdir(parent, parents=True)
        self.entries[path] = None
        self._changed(path, parent)

    def names(self, path: str) -> list[str]:
        """Names in a directory, sorted by byte value."""
        if not self.is_dir(path):
            raise _error(errno.ENOTDIR if path in self.entries else errno.ENOENT, path)
        prefix = path.rstrip("/") + "/"
        inside = (p[len(prefix) :] for p in self.entries if p.startswith(prefix) and p != path)
        return sorted(name for name in inside if "/" not in name)

    def remove(self, path: str, *, recursive: bool = False) -> None:
        if path not in self.entries:
            raise _error(errno.ENOENT, path)
        if self.is_dir(path) and not recursive:
            raise _error(errno.EISDIR, path)
        for name in [p for p in self.entries if p == path or p.startswith(path.rstrip("/") + "/")]:
            if name != "/":
                del self.entries[name]
                self.times.pop(name, None)
        self._changed(posixpath.dirname(path))

    def move(self, source: str, target: str) -> None:
        if source not in self.entries:
            raise _error(errno.ENOENT, source)
        if target == source or target.startswith(source + "/"):
            raise _error(errno.EINVAL, target)
        moved = {p: c for p, c in self.entries.items() if p == source or p.startswith(source + "/")}
        if target in self.entries:
            self.remove(target, recursive=True)
        for path, content in moved.items():
            del self.entries[path]
            self.entries[target + path[len(source) :]] = content
            if path in self.times:
                self.times[target + path[len(source) :]] = self.times.pop(path)
        self._changed(posixpath.dirname(source), posixpath.dirname(target))

    def size(self) -> int:
        """Bytes of all contents."""
        return sum(len(content) for content in self.entries.values() if content)

    def private(self, base: dict[str, bytes | None]) -> int:
        """Bytes of the contents that are not shared with `base`."""
        return sum(len(c) for p, c in self.entries.items() if c and base.get(p) is not c)
