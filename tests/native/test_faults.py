"""Law 7, step by step: every step of a seal and of a rebuild is made to fail once. The source runs on, unharmed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bunshin_gym import ForkError, ToolCall, Workspace, WorkspaceSpec
from native import play

HEADER = (Path(__file__).parents[2] / "native" / "src" / "fork" / "blob_args.h").read_text()


def steps(enum: str) -> list[tuple[int, str]]:
    """The names of a C enum that counts up from 1, as the engine's own source has them."""
    body = re.search(rf"enum {enum} \{{(.*?)\}};", HEADER, re.S)
    assert body
    names = re.findall(r"^\s*([A-Z_]+)", re.sub(r"/\*.*?\*/", "", body[1].replace(",", "\n")), re.M)
    return [(number, name) for number, name in enumerate(names, 1) if not name.endswith("_COUNT")]


SEAL = steps("seal_step")
REBUILD = steps("restorer_step")
# Only where the tree has such a thing, which this one has not.
WITHOUT_OCCASION = {"STEP_LIMIT"}


@pytest.fixture
def source() -> Iterator[Workspace]:
    """A shell with a job, a python with threads, a timer, a signal, a semaphore, sockets: something for every step."""
    with Workspace(WorkspaceSpec()) as workspace:
        workspace.run("n=5; cd /tmp; echo a > file; sleep 1000 &")
        code = (
            "import signal, threading, time\n"
            "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"
            "signal.signal(signal.SIGUSR1, lambda *_: None)\n"
            "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n"
            "signal.raise_signal(signal.SIGUSR1)\n"
            "import ctypes, socket\n"
            "pair = socket.socketpair()\n"
            "libc = ctypes.CDLL(None)\n"
            "libc.semop(libc.semget(7, 1, 0o1600), b'\\0\\0\\1\\0\\0\\x10', 1)\n"
            "signal.setitimer(signal.ITIMER_REAL, 1000)[0]\n"
        )
        workspace.call(ToolCall("python", {"code": code}))
        yield workspace


def assert_well(source: Workspace) -> None:
    assert source.run("echo $n; cat file; jobs -r | wc -l").output == "5\na\n1\n"
    seen = source.call(ToolCall("python", {"code": "threading.active_count(), signal.sigpending()"}))
    assert seen.output == "(2, {<Signals.SIGUSR1: 10>})\n"


@pytest.mark.parametrize(("number", "name"), SEAL, ids=[name for _, name in SEAL])
def test_a_step_of_the_seal_fails(source: Workspace, number: int, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUNSHIN_FAULT", f"seal:{number}")
    with pytest.raises(ForkError):
        source.snapshot()
    assert_well(source)
    monkeypatch.delenv("BUNSHIN_FAULT")
    source.snapshot().close()
    assert_well(source)


@pytest.mark.parametrize(("number", "name"), REBUILD, ids=[name for _, name in REBUILD])
def test_a_step_of_the_rebuild_fails(
    source: Workspace, number: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a child, and in the fork that the source itself is to go on as."""
    with source.snapshot() as snapshot:
        monkeypatch.setenv("BUNSHIN_FAULT", f"rebuild:{number}")
        (child,) = snapshot.fork(1)
        if name in WITHOUT_OCCASION:
            assert isinstance(child, Workspace)
            child.close()
            return
        assert isinstance(child, ForkError), name
        with pytest.raises(ForkError):
            source.snapshot()
        assert_well(source)
        monkeypatch.delenv("BUNSHIN_FAULT")
        (child,) = snapshot.fork(1)
        assert isinstance(child, Workspace)
        with child:
            assert_well(child)


LATE = ["seal:SEAL_CAPTURE", "seal:SEAL_ANSWER", "rebuild:STEP_BIRTH"]
PENDING = ["unix_pending_with_words", "unix_pending_client_gone", "unix_pending_full_with_writer"]


@pytest.mark.parametrize("fault", LATE)
@pytest.mark.parametrize("name", PENDING)
def test_clients_that_a_seal_accepted_are_put_back(name: str, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A seal looks into what a busy server has not accepted; given up, it leaves the clients as they were."""
    kind, step = fault.split(":")
    number = {word: at for at, word in (SEAL if kind == "seal" else REBUILD)}[step]
    (victim,) = (victim for victim in play.all_victims() if victim.name == name)
    with Workspace(WorkspaceSpec(engine="native")) as source:
        place = play.start(source, victim)
        for _ in range(2):
            monkeypatch.setenv("BUNSHIN_FAULT", f"{kind}:{number}")
            with pytest.raises(ForkError):
                source.snapshot()
            monkeypatch.delenv("BUNSHIN_FAULT")
        with source.snapshot() as snapshot:
            (child,) = snapshot.fork(1)
            assert isinstance(child, Workspace)
        monkeypatch.setenv("BUNSHIN_FAULT", f"{kind}:{number}")
        with child:
            with pytest.raises(ForkError):
                source.snapshot()
            assert not play.verdicts([("source", source), ("child", child)], place, 0.0)


@pytest.mark.parametrize("fault", ["", "seal:4"], ids=["kept", "given-up"])
def test_a_session_that_dies_while_it_is_frozen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed, it takes a while to go: it has ended, for source and fork, and the next call gets another."""
    with Workspace(WorkspaceSpec()) as workspace:
        code = "import os; held = bytearray(b'x') * (300 << 20); print(os.getpid())"
        pid = workspace.call(ToolCall("python", {"code": code})).output
        workspace.run(f"kill -9 {pid}")
        if fault:
            monkeypatch.setenv("BUNSHIN_FAULT", fault)
            with pytest.raises(ForkError):
                workspace.snapshot()
            monkeypatch.delenv("BUNSHIN_FAULT")
        else:
            with workspace.snapshot() as snapshot:
                (child,) = snapshot.fork(1)
            assert isinstance(child, Workspace)
            with child:
                assert child.call(ToolCall("python", {"code": "1 + 1"}), timeout=10).output == "2\n"
        time.sleep(0.5)  # until it has gone
        told = workspace.call(ToolCall("python", {"code": "1 + 1"}), timeout=10)
        assert told.output == "2\n"
        assert "the interpreter had ended" in told.notice


@pytest.mark.timeout(60)
def test_answers_while_seals_succeed_and_fail(source: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve times each: every kind of call, a job that ends meanwhile, answered exactly."""
    with monkeypatch.context() as patch:
        for n in range(12):
            for number in (0, *(number for number, _ in SEAL)):
                source.run(f"(sleep 0.0{n % 4}; exit {n}) & job=$!")
                if number:
                    patch.setenv("BUNSHIN_FAULT", f"seal:{number}")
                    with pytest.raises(ForkError):
                        source.snapshot()
                    patch.delenv("BUNSHIN_FAULT")
                else:
                    source.snapshot().close()
                ended = source.run(f"wait $job; echo {n} $?; x=$(echo $n | cat); echo $x", timeout=10)
                assert (ended.output, ended.exit_code) == (f"{n} {n}\n5\n", 0)
                exited = source.call(ToolCall("exec", {"argv": ["sh", "-c", f"echo {n}; exit {n}"]}), timeout=10)
                assert (exited.output, exited.exit_code) == (f"{n}\n", n)
    assert_well(source)


def test_pipes_beyond_the_limit_of_a_user() -> None:
    """New pipes hold little then: what is in a fuller one cannot go along, and the error says whose limit it is."""
    held: list[int] = []

    def make() -> int:
        held.extend(os.pipe())
        return fcntl.fcntl(held[-1], fcntl.F_GETPIPE_SZ)

    with Workspace(WorkspaceSpec()) as workspace:
        code = "import os; ends = os.pipe(); os.write(ends[1], b'x' * 40000)"
        workspace.call(ToolCall("python", {"code": code}))
        try:
            with contextlib.suppress(PermissionError):
                for _ in range(64):
                    make()
                    fcntl.fcntl(held[-1], fcntl.F_SETPIPE_SZ, 1 << 20)
            probe = "import fcntl, os; fcntl.fcntl(os.pipe()[1], fcntl.F_GETPIPE_SZ)"
            while int(workspace.call(ToolCall("python", {"code": probe})).output) > 8192:
                make()
            for _ in range(64):  # more than what the end of a call, or of an earlier workspace, gives back
                make()
            with pytest.raises(ForkError, match=r"fs\.pipe-user-pages-soft"):
                workspace.snapshot()
        finally:
            for fd in held:
                os.close(fd)
        left = "len(os.read(ends[0], 50000))"
        workspace.snapshot().close()
        assert workspace.call(ToolCall("python", {"code": left})).output == "40000\n"
