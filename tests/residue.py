"""What bunshin leaves on a machine: the same look before and after a test must see nothing new.

Only what can be bunshin's own is looked at, so that other programs on the machine do not fail a test: the
descendants of the test process, processes named after us that nobody else owns, objects that carry our name.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

OURS = ("bunshin-init", "bunshin-keeper")
# Helpers that Python itself starts once and keeps for the life of the test process.
PYTHONS_OWN = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


@dataclass(frozen=True)
class Process:
    pid: int
    start: int  # in clock ticks since boot: tells a reused pid from the old one
    ppid: int = field(compare=False)
    comm: str = field(compare=False)
    state: str = field(compare=False)


def _processes() -> dict[int, Process]:
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError, ValueError, IndexError):
            stat = (entry / "stat").read_text(errors="replace")
            head, _, tail = stat.rpartition(")")
            fields = tail.split()
            found[int(entry.name)] = Process(
                int(entry.name), int(fields[19]), int(fields[1]), head.partition("(")[2], fields[0]
            )
    return found


def _is_ours(process: Process) -> bool:
    if process.comm in OURS:
        return True
    try:
        exe = Path(f"/proc/{process.pid}/exe").readlink()
    except OSError:
        return False
    return exe.name.removesuffix(" (deleted)") in OURS


def _is_pythons_own(process: Process) -> bool:
    try:
        command = Path(f"/proc/{process.pid}/cmdline").read_bytes()
    except OSError:
        return False
    return any(name.encode() in command for name in PYTHONS_OWN)


def _ancestors(process: Process, table: dict[int, Process]) -> Iterator[Process]:
    while (parent := table.get(process.ppid)) is not None and parent.pid != process.pid:
        yield parent
        process = parent


def processes() -> set[Process]:
    """Our descendants, and processes named after us that no other living program owns."""
    table = _processes()
    me = table[os.getpid()]
    above = {me.pid, *(a.pid for a in _ancestors(me, table))}
    found = set()
    for process in table.values():
        if process.pid == me.pid:
            continue
        chain = [a.pid for a in _ancestors(process, table)]
        if me.pid in chain:
            if not _is_pythons_own(process):
                found.add(process)
        elif _is_ours(process):
            # An orphan hangs under pid 1 or a subreaper above us; any other place is another program's.
            owner = next((a for a in _ancestors(process, table) if not _is_ours(a)), None)
            if owner is None or owner.pid in above:
                found.add(process)
    return found


def _in_use(folder: str) -> bool:
    """Whether a state directory is locked by a living keeper. One that outlived its owner is seen as a process."""
    try:
        with open(f"{folder}/lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _named_bunshin(folder: str) -> Iterator[str]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                mine = "bunshin" in entry.name and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
                if mine and not _in_use(entry.path):
                    yield f"path {entry.path}"


def _layers(running: set[Process]) -> Iterator[str]:
    """The layers that our own keepers hold: the last word of a keeper's command line is its state directory."""
    for process in running:
        if process.comm == "bunshin-keeper":
            with suppress(OSError):
                words = Path(f"/proc/{process.pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
                yield from (f"layer {layer}" for layer in Path(os.fsdecode(words[-1])).glob("layers/*"))


def _holds_strangers(cgroup: Path) -> bool:
    """Whether processes of another pid namespace are in it. Version 2 lists them as 0, version 1 only counts them."""
    with suppress(OSError):
        if any("0" in path.read_text().split() for path in cgroup.rglob("cgroup.procs")):
            return True
        counted = Path("/sys/fs/cgroup/pids", cgroup.name)
        return int((counted / "pids.current").read_text()) > len((counted / "cgroup.procs").read_text().split())
    return False


def _cgroups(running: set[Process]) -> Iterator[str]:
    ours = {process.pid for process in running}
    for folder, names, _ in os.walk("/sys/fs/cgroup"):
        for name in names:
            keeper = re.match(r"bunshin-(?:probe-)?(\d+)", name)
            # A living keeper of another program's has cgroups of its own; it may live in another pid namespace.
            if keeper is None or (int(keeper[1]) not in ours and Path(f"/proc/{keeper[1]}").exists()):
                continue
            if _holds_strangers(Path(folder, name)):
                continue
            yield f"cgroup {folder}/{name}"


def _descriptors() -> Iterator[str]:
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{number}")
            if target.startswith("/memfd:bunshin") or os.path.basename(target).startswith("bunshin-"):
                yield f"descriptor {number} -> {target}"


@dataclass(frozen=True)
class Look:
    """One look at the machine. `a - b` lists, in words, what is in a and was not in b."""

    processes: frozenset[Process]
    objects: frozenset[str]

    def __sub__(self, before: Look) -> list[str]:
        new = [
            f"process {p.pid} ({p.comm}), state {p.state}, parent {p.ppid}" for p in self.processes - before.processes
        ]
        return sorted(new) + sorted(self.objects - before.objects)


def look() -> Look:
    objects: set[str] = set()
    places = {"/tmp", "/var/tmp", "/dev/shm", "/run", tempfile.gettempdir(), f"/run/user/{os.geteuid()}"}
    places |= {os.environ[name] for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME") if os.environ.get(name)}
    for place in places:
        objects.update(_named_bunshin(place))
    with suppress(OSError):
        objects.update(f"shared memory /dev/shm/{name}" for name in os.listdir("/dev/shm"))
    with suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            if "bunshin" in line:
                objects.add(f"mount {line.split()[4]}")
    running = processes()
    objects.update(_layers(running))
    objects.update(_cgroups(running))
    objects.update(_descriptors())
    objects.update(f"thread {t.name}" for t in threading.enumerate() if t.name.startswith("bunshin"))
    return Look(frozenset(running), frozenset(objects))


def since(before: Look, grace: float = 5.0) -> list[str]:
    """What is new since `before`, after up to `grace` seconds in which it may still go (kernels are late)."""
    deadline = time.monotonic() + grace
    while left := look() - before:
        if time.monotonic() > deadline:
            return left
        time.sleep(0.02)
    return []
