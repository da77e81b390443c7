"""A dummy workspace's state: files, shell, processes, interpreter; and the deadline of the running call."""

from __future__ import annotations

import posixpath
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bunshin_gym.engines import dummy_commands
from bunshin_gym.engines.dummy_files import Files
from bunshin_gym.engines.dummy_python import Interpreter
from bunshin_gym.engines.dummy_shell import Io, Sink, matching

__all__ = ["Interrupted", "Job", "OutOfTime", "Session", "Signals", "WorkspaceEnded"]

INIT_PID, SHELL_PID, PYTHON_PID = 1, 2, 3


class OutOfTime(Exception):
    """The call's deadline has passed."""


class Interrupted(Exception):
    """The call was interrupted from outside."""


class WorkspaceEnded(Exception):
    """The workspace was closed, or lost, while the call ran."""


@dataclass
class Job:
    """A background sleep: its pid inside, when it ends (monotonic seconds), and what it counts as in a digest."""

    pid: int
    ends: float
    token: bytes = b""


class Signals:
    """What reaches a running call from other threads."""

    def __init__(self) -> None:
        self.wake = threading.Event()
        self.interrupted = False
        self.ended = False

    def interrupt(self) -> None:
        self.interrupted = True
        self.wake.set()

    def end(self) -> None:
        self.ended = True
        self.wake.set()


@dataclass
class Session:
    """Everything a fork copies, plus what belongs to the one running call (`deadline`, `stderr`, `signals`)."""

    files: Files
    variables: dict[str, str]
    exported: set[str]
    cwd: str
    hostname: str = "bunshin"
    status: int = 0
    next_pid: int = 10
    last_job: int = 0
    jobs: list[Job] = field(default_factory=list)
    python: Interpreter | None = None
    signals: Signals = field(default_factory=Signals)
    deadline: float = float("inf")
    stderr: Sink = lambda data: None

    def fork(self) -> Session:
        """A copy that later changes nothing here, and here nothing in it. Raises Uncopyable."""
        return Session(
            files=self.files.fork(),
            variables=dict(self.variables),
            exported=set(self.exported),
            cwd=self.cwd,
            hostname=self.hostname,
            status=self.status,
            next_pid=self.next_pid,
            last_job=self.last_job,
            jobs=[Job(job.pid, job.ends, job.token) for job in self.live_jobs()],
            python=self.python.fork() if self.python is not None else None,
        )

    def subshell(self) -> Session:
        """A copy of the shell's own state over the same files and processes."""
        return Session(
            files=self.files,
            variables=dict(self.variables),
            exported=set(self.exported),
            cwd=self.cwd,
            hostname=self.hostname,
            status=self.status,
            next_pid=self.next_pid,
            last_job=self.last_job,
            jobs=self.jobs,
            python=self.python,
            signals=self.signals,
            deadline=self.deadline,
            stderr=self.stderr,
        )

    def restart_shell(self) -> None:
        """A fresh shell: same directory, exported variables only."""
        self.variables = {name: value for name, value in self.variables.items() if name in self.exported}
        self.status = 0

    # -- time

    def check(self) -> None:
        """Raise what ends the running call, if anything does."""
        if self.signals.ended:
            raise WorkspaceEnded
        if self.signals.interrupted:
            raise Interrupted
        if time.monotonic() >= self.deadline:
            raise OutOfTime

    def sleep(self, seconds: float) -> None:
        """Sleep for real, as long as the call may run."""
        ends = time.monotonic() + seconds
        while True:
            self.check()
            now = time.monotonic()
            if now >= ends:
                return
            self.signals.wake.wait(min(ends, self.deadline) - now)

    # -- processes

    def live_jobs(self) -> list[Job]:
        now = time.monotonic()
        self.jobs[:] = [job for job in self.jobs if job.ends > now]
        return self.jobs

    def start_sleep(self, amount: str) -> int:
        seconds = dummy_commands.seconds_of(amount)
        if seconds is None:
            return 1
        self.last_job = max([self.next_pid, *(job.pid + 1 for job in self.live_jobs())])
        self.next_pid = self.last_job + 1
        self.jobs.append(Job(self.last_job, time.monotonic() + seconds))
        return 0

    # -- names

    def path(self, path: str) -> str:
        """Absolute and normal."""
        return "/" + posixpath.normpath(posixpath.join(self.cwd, path)).lstrip("/")

    def lookup(self, name: str) -> str:
        if name == "?":
            return str(self.status)
        if name == "$":
            return str(SHELL_PID)
        if name == "!":
            return str(self.last_job) if self.last_job else ""
        return self.cwd if name == "PWD" else self.variables.get(name, "")

    def glob(self, fields: list[str]) -> list[str]:
        """Each field with * or ? in its last component replaced by the names it stands for, if there are any."""
        result: list[str] = []
        for text in fields:
            head, tail = posixpath.split(text)
            directory = self.path(head or ".")
            names = matching(self.files.names(directory), tail) if self.files.is_dir(directory) else []
            result += [posixpath.join(head, name) for name in names] or [text]
        return result

    def open_sink(self, path: str, *, append: bool) -> Sink:
        """Where redirected output goes. Raises OSError."""
        target = self.path(path)
        self.files.write(target, self.files.read(target) if append and self.files.exists(target) else b"")

        def write(data: bytes) -> None:
            if self.files.exists(target):
                self.files.write(target, self.files.read(target) + data)

        return write

    @contextmanager
    def extra_environment(self, assignments: list[tuple[str, str]]) -> Iterator[None]:
        """Variables for one command only, exported to it."""
        before = dict(self.variables), set(self.exported)
        if not assignments:
            yield
            return
        self.variables.update(assignments)
        self.exported.update(name for name, _ in assignments)
        try:
            yield
        finally:
            names = {name for name, _ in assignments}
            for name in names:
                self.variables.pop(name, None)
                if name in before[0]:
                    self.variables[name] = before[0][name]
            self.exported = (self.exported - names) | (before[1] & names)

    def execute(self, argv: list[str], io: Io) -> int:
        """Run one simple command by name."""
        self.check()
        command: Callable[[Session, list[str], Io], int] | None = dummy_commands.COMMANDS.get(
            posixpath.basename(argv[0]) if argv[0].startswith(("/bin/", "/usr/bin/")) else argv[0]
        )
        if command is None:
            io.err(f"bash: {argv[0]}: command not found\n".encode())
            return 127
        try:
            return command(self, argv, io)
        except OSError as error:
            io.err(f"{argv[0]}: {error.filename}: {error.strerror}\n".encode())
            return 1
