"""A terminal in a terminal: script(1) in a session of ours, a shell in it, vim in that; all goes on, sizes too."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time

from victim import HERE, expect, go, ok, ready

seen = b""


def until(text: bytes) -> None:
    global seen
    deadline = time.monotonic() + 15
    while text not in seen:
        expect(time.monotonic() < deadline, f"shown {seen[-400:]!r}, not {text!r}")
        if select.select([master], [], [], 0.1)[0]:
            seen += os.read(master, 65536)
    seen = seen[seen.index(text) + len(text) :]


def type_in(text: bytes) -> None:
    os.write(master, text)


def size() -> tuple[int, int]:
    rows, columns, _, _ = struct.unpack("HHHH", fcntl.ioctl(master, termios.TIOCGWINSZ, b"\0" * 8))
    return rows, columns


os.environ.update(TERM="xterm", LANG="C.UTF-8", HISTFILE="", PS1="$ ", HOME=str(HERE))
pid, master = pty.fork()
if pid == 0:
    os.execvp("script", ["script", "-q", "-f", "-c", "bash --norc --noprofile", str(HERE / "record")])
fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 31, 97, 0, 0))
type_in(b"x=kept; trap 'echo winch-$x' WINCH; echo a-$x\n")
until(b"a-kept")
type_in(b"stty size; tty\n")
until(b"31 97")
until(b"/dev/pts/")
type_in(b"vim -u NONE -n " + str(HERE / "text").encode() + b"\n")
until(b"[New")
type_in(b"ifirst half")
until(b"half")
ready()
go()
expect(size() == (31, 97), f"the size is {size()}")
type_in(b" second half\x1b:wq\n")
deadline = time.monotonic() + 15
while not (HERE / "text").exists() or (HERE / "text").read_text() != "first half second half\n":
    expect(time.monotonic() < deadline, f"vim does not write: shown {seen[-300:]!r}")
    time.sleep(0.05)
seen = b""
type_in(b"echo b-$x; stty size\n")
until(b"b-kept")
until(b"31 97")
expect(b"winch-kept" not in seen, "somebody says that the size changed")
fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 50, 0, 0))
deadline = time.monotonic() + 15
while b"20 50" not in seen:  # script hands the size on
    expect(time.monotonic() < deadline, f"nobody hands the size on: {seen[-300:]!r}")
    type_in(b"stty size\n")
    if select.select([master], [], [], 0.2)[0]:
        seen += os.read(master, 65536)
type_in(b"exit\n")
deadline = time.monotonic() + 10
while os.waitpid(pid, os.WNOHANG) == (0, 0):  # script ends when the inner terminal hangs up
    expect(time.monotonic() < deadline, "script does not end with its shell")
    if select.select([master], [], [], 0.05)[0]:
        with contextlib.suppress(OSError):
            os.read(master, 65536)
expect("b-kept" in (HERE / "record").read_text(errors="replace"), "the record misses what came later")
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
ok()
