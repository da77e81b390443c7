"""The dummy engine: an in-memory twin of a real one, with the same laws, for tests and for what is built on engines.

It isolates nothing and needs nothing. Its shell knows a subset of bash (`dummy_shell`, `dummy_commands`), its python
tool a subset of Python (`dummy_python`), its processes are the shell, the interpreter and background sleeps. Sleeps
and timeouts are real. Forks share file contents and copy everything else. The image is ignored.

`faults` makes it fail on purpose, and the shell command `bunshin-fault lose` loses the workspace it runs in.
"""

from __future__ import annotations

import errno
import os
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from bunshin_gym.engines import dummy_digest
from bunshin_gym.engines.dummy_files import Files
from bunshin_gym.engines.dummy_python import Interpreter, Uncopyable
from bunshin_gym.engines.dummy_session import (
    INIT_PID,
    PYTHON_PID,
    SHELL_PID,
    Interrupted,
    OutOfTime,
    Session,
    Signals,
    WorkspaceEnded,
)
from bunshin_gym.engines.dummy_shell import Io, ShellExit, ShellSyntax, run_source
from bunshin_gym.errors import ForkError, UnsupportedResource, WorkspaceError, WorkspaceLost
from bunshin_gym.state import StateDigest
from bunshin_gym.tools import ExitReason, ToolCall, ToolResult
from bunshin_gym.tools.call import clip, lost
from bunshin_gym.workspace import ForkReport, Holding, MemoryUsage, ProcessInfo, WorkspaceSpec

__all__ = ["DummyEngine", "DummySnapshot", "DummyWorkspace", "Faults"]

_ENVIRONMENT = {"HOME": "/root", "PATH": "/usr/bin:/bin", "USER": "root", "PAGER": "cat", "GIT_PAGER": "cat"}
_PROCESS_BYTES = 1 << 20  # what a process of the twin is said to take: a number to add up, no measurement


@dataclass
class Faults:
    """What is to go wrong. Thread-safe to use up; `clear()` puts everything right again.

    `lose_at_call`: k loses the workspace of the k-th call from now (1 is the next). `fail_children`: places in the next
    `fork` whose child fails. `fail_forks`, `fail_snapshots`, `fail_creates`: how many of the next ones fail altogether.
    """

    lose_at_call: int = 0
    fail_children: set[int] = field(default_factory=set)
    fail_forks: int = 0
    fail_snapshots: int = 0
    fail_creates: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def clear(self) -> None:
        with self._lock:
            self.lose_at_call = self.fail_forks = self.fail_snapshots = self.fail_creates = 0
            self.fail_children = set()

    def use(self, name: str) -> bool:
        """Count `name` down; whether this is one that fails."""
        with self._lock:
            left = getattr(self, name)
            setattr(self, name, max(0, left - 1))
            return bool(left == 1 if name == "lose_at_call" else left > 0)

    def use_children(self) -> set[int]:
        with self._lock:
            failing, self.fail_children = self.fail_children, set()
            return failing


class DummyEngine:
    """Makes in-memory workspaces. `live` counts those that are neither closed nor lost."""

    name = "dummy"

    def __init__(self) -> None:
        self.faults = Faults()
        self._workspaces: weakref.WeakSet[DummyWorkspace] = weakref.WeakSet()

    @property
    def live(self) -> int:
        return sum(workspace.alive for workspace in list(self._workspaces))

    def create(self, spec: WorkspaceSpec) -> DummyWorkspace:
        if self.faults.use("fail_creates"):
            raise WorkspaceError("cannot create a workspace: a fault was asked for")
        variables = _ENVIRONMENT | dict(spec.env)
        session = Session(Files(), variables, set(variables), spec.cwd, spec.hostname)
        session.files.mkdir(spec.cwd, parents=True)
        session.files.times.clear()  # fresh workspaces are all alike
        return self.around(spec, session, {})

    def around(self, spec: WorkspaceSpec, session: Session, base: dict[str, bytes | None]) -> DummyWorkspace:
        workspace = DummyWorkspace(self, spec, session, base)
        self._workspaces.add(workspace)
        return workspace

    def features(self) -> dict[str, Any]:
        return {"engine": self.name, "live": self.live}


class DummyWorkspace:
    """A live workspace of the twin. `base` is what its files shared when it was forked."""

    def __init__(
        self, engine: DummyEngine, spec: WorkspaceSpec, session: Session, base: dict[str, bytes | None]
    ) -> None:
        self.engine = engine
        self.spec = spec
        self.session = session
        self.base = base
        self.calls = 0
        self.in_background = False
        self._ended = ""

    @property
    def alive(self) -> bool:
        return not self._ended

    @property
    def report(self) -> ForkReport:
        return ForkReport()

    # -- calls

    def call(self, call: ToolCall, timeout: float) -> ToolResult:
        if self.engine.faults.use("lose_at_call"):
            self._end("a fault was asked for")
        session = self.session
        session.signals = signals = Signals()
        if self._ended:  # looked at after there are new signals, so that no close() is missed
            return lost(self._ended)
        self.calls += 1
        start = time.monotonic()
        session.deadline = start + timeout
        output = _Output(self.spec)
        notice, code, reason = "", 0, ExitReason.EXITED
        try:
            code, reason, notice = self._dispatch(call, output)
        except OutOfTime:
            code, reason = 124, ExitReason.TIMEOUT
            notice = f"timed out after {timeout:g} s; what the call had started was killed, the session goes on"
        except Interrupted:
            code, notice = 130, "interrupted"
        except WorkspaceEnded:
            return lost(self._ended)
        if signals.ended:
            return lost(self._ended)
        session.status = code
        return output.result(code, reason, time.monotonic() - start, notice, self.calls)

    def _dispatch(self, call: ToolCall, output: _Output) -> tuple[int, ExitReason, str]:
        args = call.args
        if call.name == "shell":
            return self._shell(args["command"], output)
        if call.name == "exec":
            return self._exec(call, output), ExitReason.EXITED, ""
        if call.name == "python":
            self.session.python = self.session.python or Interpreter()
            text, code = self.session.python.run(args["code"], self.session.check)
            output.out(text.encode())
            return code, ExitReason.EXITED, ""
        path = args["path"]
        try:
            if call.name == "read_file":
                output.out(self.session.files.read(self._path(path)))
            else:
                content = args["content"].encode()
                self.session.files.write(self._path(path), content, parents=True)
                output.out(f"wrote {len(content)} bytes to {path}\n".encode())
        except OSError as error:
            output.err(f"{call.name}: {path}: {error.strerror}\n".encode())
            return 1, ExitReason.EXITED, ""
        return 0, ExitReason.EXITED, ""

    def _shell(self, command: str, output: _Output) -> tuple[int, ExitReason, str]:
        if command.split()[:1] == ["bunshin-fault"]:
            self._end("a fault was asked for")
        session = self.session
        session.stderr = output.err
        jobs = list(session.live_jobs())
        try:
            return run_source(session, command, Io(b"", output.out, output.err)), ExitReason.EXITED, ""
        except ShellSyntax as error:
            output.err(f"bash: {error}\n".encode())
            return 2, ExitReason.EXITED, ""
        except ShellExit as exit_:
            session.restart_shell()
            notice = "the shell exited; a fresh one has the same directory and exported variables"
            return exit_.code, ExitReason.SHELL_EXITED, notice
        except OutOfTime:
            session.jobs[:] = jobs  # what this call had started goes with it
            raise

    def _exec(self, call: ToolCall, output: _Output) -> int:
        side = self.session.subshell()
        side.cwd = self.spec.cwd
        side.variables = {n: v for n, v in side.variables.items() if n in side.exported} | dict(
            call.args.get("env", {})
        )
        side.exported |= set(call.args.get("env", {}))
        side.stderr = output.err
        argv = call.args.get("argv") or [*call.args.get("shell", ("/bin/sh", "-c")), call.args["command"]]
        if "cwd" in call.args:
            side.cwd = self._path(call.args["cwd"])
            if not side.files.is_dir(side.cwd):
                output.err(f"exec: {call.args['cwd']}: No such file or directory\n".encode())
                return 127
        try:
            return side.execute(list(argv), Io(b"", output.out, output.err))
        except ShellExit as exit_:
            return exit_.code
        except ShellSyntax as error:
            output.err(f"{argv[0]}: {error}\n".encode())
            return 2

    def read_output(self, call_id: int) -> ToolResult:
        self._living("read output")
        return ToolResult("", call_id=call_id)  # background sleeps write nothing

    def interrupt(self) -> None:
        self.session.signals.interrupt()

    # -- files

    def write_file(self, path: str, data: bytes | BinaryIO, mode: int | None) -> None:
        self._living("write a file")
        content = bytes(data) if isinstance(data, (bytes, bytearray, memoryview)) else data.read()
        try:
            self.session.files.write(self._path(path), content, parents=True)
        except OSError as error:
            raise _file_error("write", path, error) from None

    def read_file(self, path: str) -> bytes:
        self._living("read a file")
        try:
            return self.session.files.read(self._path(path))
        except OSError as error:
            raise _file_error("read", path, error) from None

    def _path(self, path: str) -> str:
        return os.path.normpath(os.path.join(self.spec.cwd, path))

    def freeze(self) -> None:
        self._living("freeze")
        for job in self.session.live_jobs():
            job.ends = float("inf")  # a sleep that stands still does not end

    # -- forks

    def snapshot(self) -> DummySnapshot:
        self._living("snapshot")
        if self.engine.faults.use("fail_snapshots"):
            raise ForkError("cannot seal: a fault was asked for")
        return DummySnapshot(self.engine, self.spec, self._sealed())

    def park(self) -> DummySnapshot:
        snapshot = self.snapshot()
        self._end("it was parked")
        return snapshot

    def _sealed(self) -> Session:
        try:
            return self.session.fork()
        except Uncopyable as error:
            raise UnsupportedResource(
                f"cannot fork: pid {PYTHON_PID} (python) holds {error}",
                pid=PYTHON_PID,
                comm="python",
                reason=str(error),
            ) from None

    def restore(self, snapshot: DummySnapshot) -> None:
        self._living("restore")
        self.session = snapshot.sealed.fork()
        self.base = dict(snapshot.sealed.files.entries)

    # -- looking

    def digest(self, origin: bytes) -> StateDigest:
        self._living("digest")
        return dummy_digest.digest(self.session, origin)

    def background(self, on: bool) -> bool:
        self.in_background = on
        return True

    def memory(self) -> MemoryUsage:
        self._living("measure memory")
        files = self.session.files
        own = _PROCESS_BYTES * len(self.processes()) + files.private(self.base)
        shared = files.size() - files.private(self.base)
        return MemoryUsage(rss=own + shared, pss=own + shared // 2 if self.base else own + shared, private=own)

    def holding(self) -> Holding:
        return Holding(self.memory().private)

    def processes(self) -> list[ProcessInfo]:
        self._living("list processes")
        found = [ProcessInfo(INIT_PID, 0, "bunshin-init"), ProcessInfo(SHELL_PID, INIT_PID, "bash")]
        if self.session.python is not None:
            found.append(ProcessInfo(PYTHON_PID, INIT_PID, "python"))
        return found + [ProcessInfo(job.pid, SHELL_PID, "sleep") for job in self.session.live_jobs()]

    # -- the end

    def close(self) -> None:
        self._end("it was closed")

    def _end(self, reason: str) -> None:
        self._ended = self._ended or f"the workspace is gone: {reason}"
        self.session.signals.end()

    def _living(self, step: str) -> None:
        if self._ended:
            raise WorkspaceLost(f"cannot {step}: {self._ended}")


class DummySnapshot:
    """A sealed session; never run, only copied."""

    def __init__(self, engine: DummyEngine, spec: WorkspaceSpec, sealed: Session) -> None:
        self.engine = engine
        self.spec = spec
        self.sealed = sealed
        self.size = sealed.files.size()
        self.spilled = 0
        self.report = ForkReport({"seal": 0.0}, bytes_shared=self.size)

    def fork(self, n: int) -> Sequence[DummyWorkspace | WorkspaceError]:
        if self.engine.faults.use("fail_forks"):
            raise ForkError("cannot rebuild: a fault was asked for")
        failing = self.engine.faults.use_children()
        return [
            ForkError(f"cannot rebuild child {i}: a fault was asked for")
            if i in failing
            else self.engine.around(self.spec, self.sealed.fork(), dict(self.sealed.files.entries))
            for i in range(n)
        ]

    def spill(self) -> int:
        return 0  # it has no disk

    def wake(self) -> DummyWorkspace:
        (child,) = self.fork(1)
        if isinstance(child, WorkspaceError):
            raise child
        return child

    def holding(self) -> Holding:
        return Holding(self.size)

    def close(self) -> None:
        self.sealed = Session(Files({}), {}, set(), "/")


class _Output:
    """Collects a call's streams, and what a person would have seen of both."""

    def __init__(self, spec: WorkspaceSpec) -> None:
        self.limit = spec.output_limit
        self.seen = bytearray()
        self.stdout = bytearray()
        self.stderr = self.stdout if not spec.separate_stderr else bytearray()
        self.joined = not spec.separate_stderr

    def out(self, data: bytes) -> None:
        self.seen += data
        self.stdout += data

    def err(self, data: bytes) -> None:
        self.seen += data
        self.stderr += data

    def result(self, code: int, reason: ExitReason, duration: float, notice: str, call_id: int) -> ToolResult:
        stderr = b"" if self.joined else bytes(self.stderr)
        seen, cut = clip(bytes(self.seen), self.limit)
        out, out_cut = clip(bytes(self.stdout), self.limit)
        err, err_cut = clip(stderr, self.limit)
        return ToolResult(
            output=seen.decode(errors="replace"),
            stdout=out,
            stderr=err,
            exit_code=code,
            exit_reason=reason,
            truncated=cut or out_cut or err_cut,
            duration=duration,
            stdout_total=len(self.stdout),
            stderr_total=len(stderr),
            notice=notice,
            call_id=call_id,
        )


def _file_error(step: str, path: str, error: OSError) -> WorkspaceError:
    return WorkspaceError(f"cannot {step} {path}: {error.strerror}", errno=error.errno or errno.EIO)
