"""One kind of turmoil, for ever, that checks itself: python3 storm.py KIND. Run inside a workspace.

It counts its rounds in /tmp/KIND.rounds, writes the first thing that is wrong to /tmp/KIND.broken, and ends.
"""

import contextlib
import ctypes
import itertools
import mmap
import os
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable

kind = sys.argv[1]
chance = random.Random(kind)


def broken(what: str) -> None:
    with open(f"/tmp/{kind}.broken", "a") as file:
        file.write(what.replace("\n", " ") + "\n")
    os._exit(1)


def expect(condition: bool, what: object = "") -> None:
    if not condition:
        broken(f"line {sys._getframe(1).f_lineno}: {what}")


def reap(pid: int, want: int) -> None:
    got, status = os.waitpid(pid, 0)
    expect((got, os.waitstatus_to_exitcode(status)) == (pid, want), (got, pid, status, want))


stated = [0]


def run_forks() -> None:
    """Children that fork, some into sessions and orphaned; each sees its parent's memory as it was."""
    stated[0] = chance.randint(0, 1 << 30)
    for code in range(chance.randint(1, 5)):
        before = stated[0]
        pid = os.fork()
        if pid == 0:
            expect(stated[0] == before, "memory of a child")
            if code % 2 and os.fork() == 0:
                if code % 3 == 0:
                    os.setsid()
                time.sleep(chance.random() * 0.002)
                os._exit(0)
            os._exit(code)
        stated[0] += 1
        reap(pid, code)


def run_bombs() -> None:
    """As many children as the limit allows, and then some."""
    pids = []
    with contextlib.suppress(OSError):
        while len(pids) < 150:
            pid = os.fork()
            if pid == 0:
                time.sleep(0.002)
                os._exit(3)
            pids.append(pid)
    for pid in pids:
        reap(pid, 3)


def run_threads() -> None:
    total = itertools.count()
    threads = [threading.Thread(target=lambda: [next(total) for _ in range(50)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(next(total) == 400, "threads have lost counts")


def run_execs() -> None:
    pids = [os.posix_spawn("/bin/sh", ["sh", "-c", f"exit {code}"], os.environ) for code in range(3)]
    pid = os.fork()
    if pid == 0:
        os.execv("/bin/sh", ["sh", "-c", "exec sh -c 'exec true'"])
    for code, child in enumerate(pids):
        reap(child, code)
    reap(pid, 0)


def run_vforks() -> None:
    """What libc's system() and posix_spawn() do, from several threads at once."""
    libc = ctypes.CDLL(None)
    answers: list[int] = []
    calls = [threading.Thread(target=lambda n=n: answers.append(libc.system(b"exit %d" % n) >> 8)) for n in range(3)]
    for call in calls:
        call.start()
    for call in calls:
        call.join()
    expect(sorted(answers) == [0, 1, 2], answers)


QUEUED = (signal.SIGRTMIN + 2, signal.SIGRTMIN + 3)


def run_signals() -> None:
    """Queued signals all arrive, and others do not keep them from it."""
    pid = os.fork()
    if pid == 0:
        for _ in range(20):
            for number in (*QUEUED, signal.SIGUSR1):
                os.kill(os.getppid(), number)
        os._exit(0)
    reap(pid, 0)
    for n in range(40):
        expect(signal.sigtimedwait(QUEUED, 20) is not None, f"{n} of 40 signals")
    expect(signal.sigtimedwait(QUEUED, 0) is None, "more signals than were sent")


def run_mappings() -> None:
    kept = []
    for n in range(20):
        size = 4096 * chance.randint(1, 100)
        memory = mmap.mmap(-1, size, flags=chance.choice([mmap.MAP_PRIVATE, mmap.MAP_SHARED]))
        memory[0:8], memory[-8:] = n.to_bytes(8, "little"), n.to_bytes(8, "big")
        kept.append(memory)
        if chance.random() < 0.5:
            kept.pop(0).close()
    for memory in kept:
        expect(int.from_bytes(memory[0:8], "little") == int.from_bytes(memory[-8:], "big"), "memory")
        memory.close()


def run_files() -> None:
    path = f"/tmp/{kind}.{chance.randint(0, 9)}"
    with open(path, "w+b") as file:
        data = chance.randbytes(chance.randint(1, 50000))
        file.write(data)
        file.flush()
        if chance.random() < 0.5:
            os.rename(path, path + "x")
            path += "x"
        fds = [os.open(path, os.O_RDONLY) for _ in range(chance.randint(1, 20))]
        if chance.random() < 0.5:
            os.unlink(path)
        for fd in fds:
            expect(os.read(fd, 60000) == data, "a file")
            os.close(fd)
        file.seek(0)
        expect(file.read() == data, "a file")


def run_sockets() -> None:
    one, other = socket.socketpair()
    word = chance.randbytes(300)
    with one, other:
        one.sendall(word)
        got = b""
        while len(got) < len(word):
            got += other.recv(1000)
        expect(got == word, "a socket")
    reader, writer = os.pipe()
    os.write(writer, word)
    expect(os.read(reader, 1000) == word, "a pipe")
    os.close(reader)
    os.close(writer)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with socket.create_connection(listener.getsockname()) as near, listener.accept()[0] as far:
            near.sendall(word)
            got = b""
            while len(got) < len(word):
                got += far.recv(1000)
            expect(got == word, "a connection")


def main() -> None:
    run: Callable[[], None] = globals()[f"run_{kind}"]
    signal.pthread_sigmask(signal.SIG_BLOCK, QUEUED)
    signal.signal(signal.SIGUSR1, lambda number, frame: None)
    for n in itertools.count(1):
        try:
            run()
        except Exception as error:
            broken(f"round {n}: {error!r}")
        with open(f"/tmp/{kind}.new", "w") as file:
            file.write(f"{n}\n")
        os.rename(f"/tmp/{kind}.new", f"/tmp/{kind}.rounds")


main()
