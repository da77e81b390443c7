"""Group D: processes, disk, files, and the end of the owner."""

from __future__ import annotations

import hashlib
import io
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from field.looks import execute, python, until

import residue
from bunshin_gym import ExitReason, ToolCall, Workspace, WorkspaceError

pytestmark = pytest.mark.engine("native")
Start = Callable[..., Workspace]


# ---- D1: orphans


def zombies(workspace: Workspace) -> int:
    result = execute(workspace, "sh", "-c", "cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z '")
    return int(result.output)


@pytest.mark.parametrize(
    "make",
    [
        "for i in {1..2000}; do sh -c 'sleep .01 &'; done",
        "for i in {1..500}; do (setsid -f true); done",
        "python3 -c 'import os\nfor i in range(2000):\n if os.fork() == 0:\n  os.fork(); os._exit(0)\n os.wait()'",
        "for i in {1..500}; do nohup true >/dev/null 2>&1 & done; wait",
        "for i in {1..500}; do (true & true & exec true) & done; wait",
    ],
)
def test_d1_orphans_are_reaped(start: Start, make: str) -> None:
    workspace = start(pids_limit=700)
    assert workspace.run(make, timeout=200).ok
    assert until(lambda: zombies(workspace) == 0)
    assert until(lambda: len(workspace.processes()) == 2)


def test_d1_the_dead_of_a_timeout_are_reaped(workspace: Workspace) -> None:
    for _ in range(20):
        workspace.run("for i in 1 2 3 4 5; do sleep 600 & done; (sleep 600 & sleep 600 &); sleep 600", timeout=0.2)
    assert until(lambda: zombies(workspace) == 0)
    assert workspace.run("echo on").output == "on\n"


# ---- D3: too many processes


BOMBS = {
    "classic": ":(){ :|:& };:",
    "python": "python3 -c 'import os\nwhile True:\n try: os.fork()\n except OSError: pass'",
    "with sessions": 'b() { setsid bash -c "$(declare -f b); b" & b & }; b',
    "threads": (
        "python3 -c 'import threading, time\nwhile True:\n"
        " try: threading.Thread(target=time.sleep, args=(99,)).start()\n except RuntimeError: pass'"
    ),
    "sleepers": "while :; do sleep 600 & done",
}


@pytest.mark.parametrize("limit", [64, 512])
@pytest.mark.parametrize("bomb", BOMBS)
def test_d3_a_fork_bomb_stays_where_it_is(start: Start, bomb: str, limit: int) -> None:
    bombed, other = start(pids_limit=limit), start()
    bombed.run(BOMBS[bomb], timeout=2)
    for i in range(5):
        assert other.run(f"/bin/echo {i}").output == f"{i}\n"
    assert len(bombed.processes()) <= limit + 60  # with polling, what is born between two looks
    third = start()
    assert third.run("/bin/echo third").output == "third\n"
    third.close()
    # In the bombed one itself a call may fail, but it returns.
    result = bombed.run("echo here", timeout=5)
    assert result.exit_reason is not ExitReason.WORKSPACE_LOST
    bombed.close()
    assert other.run("/bin/echo still").output == "still\n"


def test_d3_a_bomb_that_timed_out_is_gone(start: Start) -> None:
    workspace = start(pids_limit=200)
    result = workspace.run("while :; do sleep 600 & done 2>/dev/null", timeout=2)
    assert result.exit_reason in (ExitReason.TIMEOUT, ExitReason.SIGNALED, ExitReason.EXITED, ExitReason.SHELL_EXITED)
    assert until(lambda: len(workspace.processes()) <= 2)
    assert workspace.run("/bin/echo on").output == "on\n"


# ---- D6: a full disk


@pytest.mark.parametrize(
    "fill",
    [
        "dd if=/dev/zero of=/work/f bs=1M",
        "head -c 1G /dev/zero > /tmp/f",
        "cat /dev/zero > /var/tmp/f",
        "for i in {1..1000}; do head -c 1M /dev/zero > f$i || exit 1; done; sleep 10",
        'python3 -c \'with open("f", "wb") as f:\n while True: f.write(bytes(1 << 20))\'',
        "fallocate -l 1G f || dd if=/dev/zero of=f bs=1M",
    ],
)
def test_d6_the_disk_limit_is_an_error_and_not_a_silence(start: Start, fill: str) -> None:
    workspace = start(disk_limit="48M")
    workspace.write_file("/work/small", b"kept")
    result = workspace.run(fill, timeout=60)
    assert result.exit_code != 0
    assert result.exit_reason is not ExitReason.TIMEOUT
    text = result.output + result.notice
    assert any(word in text.lower() for word in ("space", "limit", "too large", "file size")), result
    assert workspace.run("cat /work/small").output == "kept"
    try:
        with workspace.snapshot() as snapshot:
            for child in snapshot.fork(1):
                if isinstance(child, Workspace):
                    assert child.run("cat /work/small").output == "kept"
                    child.close()
    except WorkspaceError as refused:
        assert str(refused)
    assert workspace.run("rm -f /work/f* /tmp/f /var/tmp/f; cat /work/small").output == "kept"
    assert workspace.run("echo more > /work/g; cat /work/g").output == "more\n"


FULL = """
import sys
from bunshin_gym import Workspace, WorkspaceError
with Workspace() as workspace:
    workspace.run("cd /work; plain=1")
    result = workspace.run("dd if=/dev/zero of=/work/f bs=1M", timeout=60)
    assert result.exit_code == 1 and "No space left" in result.output, result
    result = workspace.run("echo hi; echo more > g", timeout=60)
    assert result.exit_code != 0 and "No space left" in result.output and result.stdout == b"hi\\n", result
    try:
        workspace.write_file("/work/h", bytes(1 << 20))
        raise SystemExit("a write to a full disk must fail")
    except WorkspaceError as error:
        assert error.errno == 28, error
    result = workspace.run("rm -f f h && echo $plain > g && cat g", timeout=60)
    assert result.output == "1\\n", result
    workspace.run("dd if=/dev/zero of=/work/f bs=1M", timeout=60)
    try:
        for child in workspace.fork(1):
            if isinstance(child, Workspace):
                assert child.run("echo $plain").output == "1\\n"
                child.close()
            else:
                print("refused:", child)
    except WorkspaceError as error:
        print("refused:", error)
    try:
        second = Workspace()
        print("another one:", second.run("echo ok").output)
        second.close()
    except WorkspaceError as error:
        print("refused:", error)
    result = workspace.run("echo $plain; cat g", timeout=60)
    assert result.output == "1\\n1\\n", result
print("done")
"""


@pytest.mark.needs("root")
def test_d6_a_disk_that_is_really_full(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(tmp_path)], check=True)
    try:
        run = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", FULL],
            env=os.environ | {"BUNSHIN_STATE_DIR": str(tmp_path)},
            capture_output=True, text=True, timeout=240,
        )  # fmt: skip
        assert run.returncode == 0, run.stdout + run.stderr
        assert run.stdout.endswith("done\n")
        assert os.listdir(tmp_path) == []
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


# ---- D8: the end of the owner

OWNER = """
import os, signal, sys, threading, time
from bunshin_gym import Workspace, WorkspaceSpec
workspaces = [Workspace(WorkspaceSpec(memory_limit="256M")) for _ in range(3)]
for workspace in workspaces:
    workspace.run("sleep SECONDS & setsid -f sleep SECONDS; nohup sleep SECONDS >/dev/null 2>&1 & cd /tmp; echo x > f")
with workspaces[0].snapshot() as snapshot:
    workspaces += snapshot.fork(2)
    way = sys.argv[1]
    if way == "in a call":
        threading.Thread(target=workspaces[0].run, args=("sleep SECONDS",), daemon=True).start()
        time.sleep(0.5)
    if way == "with a child":
        child = os.fork()
        if child == 0:
            time.sleep(3600)
            os._exit(0)
        print(child, flush=True)
    print("ready", flush=True)
    if way == "exception":
        raise RuntimeError("no")
    if way == "exit":
        sys.exit(3)
    if way == "_exit":
        os._exit(3)
    if way == "abort":
        os.abort()
    if way == "exec":
        os.execvp("sleep", ["sleep", "3600"])
    time.sleep(3600)
"""


def sleepers(seconds: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and seconds.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


WAYS = ["kill", "in a call", "with a child", "term", "ctrl-c", "exception", "exit", "_exit", "abort", "keeper"]


@pytest.mark.parametrize("way", WAYS)
def test_d8_nothing_outlives_its_owner(way: str, tmp_path: Path) -> None:
    before = residue.look()
    state = tmp_path / "state"
    state.mkdir()
    mine = f"86397.{os.getpid()}{WAYS.index(way)}"  # seconds: nobody else's processes sleep that long
    command = [sys.executable, "-W", "ignore", "-c", OWNER.replace("SECONDS", mine), way]
    environment = os.environ | {"BUNSHIN_STATE_DIR": str(state)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as owner:
        assert owner.stdout is not None
        child = 0
        try:
            if way == "with a child":
                child = int(owner.stdout.readline())
            assert owner.stdout.readline() == "ready\n"
            if way in ("kill", "in a call", "with a child"):
                owner.send_signal(signal.SIGKILL)
            elif way == "term":
                owner.send_signal(signal.SIGTERM)
            elif way == "ctrl-c":
                owner.send_signal(signal.SIGINT)
            elif way == "keeper":
                assert len(sleepers(mine)) == 15
                os.kill(keeper_of(owner.pid), signal.SIGKILL)
                assert until(lambda: not sleepers(mine))
                owner.send_signal(signal.SIGKILL)
            assert until(lambda: owner.poll() is not None)
            assert until(lambda: not sleepers(mine))
            if way == "keeper":  # nobody was left to clear up: the next owner does
                again = [sys.executable, "-c", "from bunshin_gym import Workspace\nWorkspace().close()"]
                subprocess.run(again, env=environment, check=True, timeout=60)
            assert until(lambda: os.listdir(state) == [])
        finally:
            owner.kill()
            if child:
                os.kill(child, signal.SIGKILL)
    assert residue.since(before) == []


def keeper_of(pid: int) -> int:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit():
                head, _, fields = (entry / "stat").read_text().rpartition(")")
                if head.endswith("(bunshin-keeper") and int(fields.split()[1]) == pid:
                    found.append(int(entry.name))
        except OSError:
            continue
    (keeper,) = found
    return keeper


def test_d8_a_keeper_that_died_is_said_and_replaced(tmp_path: Path) -> None:
    program = """
import os, signal, sys, time
sys.path.insert(0, sys.argv[1])
from bunshin_gym import ExitReason, Workspace, WorkspaceError
from field.test_workspace import keeper_of
workspace = Workspace()
assert workspace.run("echo a").output == "a\\n"
os.kill(keeper_of(os.getpid()), signal.SIGKILL)
time.sleep(0.5)
result = workspace.run("echo b", timeout=10)
assert result.exit_reason is ExitReason.WORKSPACE_LOST, result
workspace.close()
with Workspace() as fresh:
    assert fresh.run("echo c").output == "c\\n"
"""
    command = [sys.executable, "-c", program, str(Path(__file__).parent.parent)]
    environment = os.environ | {"BUNSHIN_STATE_DIR": str(tmp_path)}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr


# ---- D11: files in and out, exactly


class Stream(io.RawIOBase):
    """A file of any size that is made while it is read."""

    def __init__(self, size: int, seed: int) -> None:
        self.block = random.Random(seed).randbytes(1 << 20)
        self.left, self.digest, self.turn = size, hashlib.sha256(), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        count = min(len(buffer), self.left, len(self.block) - 8)
        piece = self.turn.to_bytes(8, "little") + self.block[: count - 8] if count > 8 else self.block[:count]
        self.turn += 1
        self.left -= count
        self.digest.update(piece)
        buffer[:count] = piece
        return count


@pytest.mark.parametrize(
    "size", [0, 1, 4095, 4096, 4097, 96 << 10, (128 << 10) - 1, 128 << 10, 16 << 20, (16 << 20) + 1]
)
def test_d11_bytes_go_in_and_come_out(workspace: Workspace, size: int) -> None:
    data = random.Random(size).randbytes(size)
    workspace.write_file("/work/f", data)
    assert workspace.run("sha256sum < f").output.split()[0] == hashlib.sha256(data).hexdigest()
    assert workspace.read_file("/work/f") == data
    workspace.run("cat f f > g")
    assert workspace.read_file("g") == data + data


def test_d11_a_gibibyte_goes_in_and_comes_out(workspace: Workspace) -> None:
    stream = Stream(1 << 30, 1)
    workspace.write_file("/work/f", stream)  # type: ignore[arg-type]
    digest = stream.digest.hexdigest()
    assert workspace.run("stat -c %s f", timeout=120).output == f"{1 << 30}\n"
    assert workspace.run("sha256sum < f", timeout=120).output.split()[0] == digest
    data = workspace.read_file("/work/f")
    assert len(data) == 1 << 30
    assert hashlib.sha256(data).hexdigest() == digest


@pytest.mark.parametrize("size", [0, 128 << 10, 16 << 20])
def test_d11_through_the_tools(workspace: Workspace, size: int) -> None:
    text = ("zeile ü\t'\"$`\\\r\n" * (size // 10))[:size]
    result = workspace.call(ToolCall("write_file", {"path": "f", "content": text}))
    assert result.ok
    assert workspace.read_file("/work/f") == text.encode()
    result = workspace.call(ToolCall("read_file", {"path": "f"}))
    assert result.stdout_total == len(text.encode())
    assert result.truncated == (len(text.encode()) > 1 << 20)


def test_d11_a_command_or_argument_as_large_as_that(workspace: Workspace) -> None:
    text = "x" * (1 << 20)
    assert workspace.run(f"cat > f <<'EOF'\n{text}\nEOF").ok
    assert workspace.read_file("/work/f") == text.encode() + b"\n"
    assert python(workspace, f"x = '{text}'; len(x)").output == f"{1 << 20}\n"
    assert execute(workspace, "printf", "%s", "x" * 130000).stdout == b"x" * 130000
    refused = execute(workspace, "printf", "%s", text)  # more than the kernel takes as one argument: said, not silent
    assert refused.exit_code == 126
    assert "too long" in refused.output


@pytest.mark.parametrize(
    "name",
    [
        " ", "  two  spaces ", "new\nline", "tab\t", "'", '"', "`id`", "$HOME", "$(id)", "-rf", "--", "*", "?", "[a]",
        "\\", "a\\nb",
        "ünïcode", "☃", "e\u0301", "x" * 255, ".hidden", "...", "a;b", "a&b", "a|b", "~", "#", "!",
        "\x01", "\x7f",
        "bad\udcff\udcfename",
        "a/b/c/d/e", "deep/" * 100 + "f", "COM1", "con:", "a%00b", "{a,b}", "(deleted)",
    ],
)  # fmt: skip
def test_d11_odd_names(workspace: Workspace, name: str) -> None:
    data = os.fsencode(name) + b"\0data"
    workspace.write_file(f"/work/in/{name}", data)
    assert workspace.read_file(f"/work/in/{name}") == data
    assert workspace.run("find in -type f -exec cat {} +").stdout == data
    workspace.run("mv in out")
    assert workspace.read_file(f"out/{name}") == data


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/nowhere/f", 2), ("/work", 21), ("/", 21), ("/etc/hostname/f", 20), ("x" * 256, 36),
        ("/work/" + "d/" * 2100 + "f", 36),
        ("/dev/null", 22), ("/work/fifo", 22), ("/work/loop", 40),
    ],
)  # fmt: skip
def test_d11_what_cannot_be_read_says_why(workspace: Workspace, path: str, code: int) -> None:
    workspace.run("mkfifo fifo; ln -s loop loop")
    with pytest.raises(WorkspaceError) as error:
        workspace.read_file(path)
    assert error.value.errno == code
    result = workspace.call(ToolCall("read_file", {"path": path}))
    assert result.exit_code == 1
    assert result.stderr
    assert workspace.run("echo on").output == "on\n"


def test_d11_a_file_is_replaced_whole(workspace: Workspace) -> None:
    workspace.write_file("f", b"long content" * 1000, mode=0o755)
    workspace.write_file("f", b"short")
    assert workspace.read_file("f") == b"short"
    assert workspace.run("stat -c %a f").output == "755\n"
    workspace.write_file("secret", b"x", mode=0o600)
    assert workspace.run("stat -c %a secret").output == "600\n"
    workspace.run("ln -s /work/f link; ln -s /nowhere/at/all dangling; ln -s ../etc/hostname up")
    workspace.write_file("link", b"through")
    assert workspace.run("cat f").output == "through"
    assert workspace.read_file("up") == b"bunshin\n"
    with pytest.raises(WorkspaceError):
        workspace.read_file("dangling")


def test_d11_a_link_leads_nowhere_outside(workspace: Workspace, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the machine")
    workspace.run(f"ln -s {secret} link; ln -s /proc/1/root/{secret} through; mkdir -p {tmp_path}")
    for path in ("link", "through", f"/../../../..{secret}"):
        with pytest.raises(WorkspaceError):
            workspace.read_file(path)
    workspace.write_file("link", b"inside")
    assert secret.read_text() == "of the machine"
    assert workspace.read_file(str(secret)) == b"inside"


def test_d11_any_object_that_can_be_read(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"from a file" * 100000)
    with open(tmp_path / "f", "rb") as source:
        workspace.write_file("f", source)
    assert workspace.read_file("f") == b"from a file" * 100000
    workspace.write_file("f", io.BytesIO(b"from memory"))
    assert workspace.read_file("f") == b"from memory"
    workspace.write_file("f", bytearray(b"array"))
    workspace.write_file("g", memoryview(b"view"))
    assert workspace.read_file("f") + workspace.read_file("g") == b"arrayview"


def test_d11_a_running_program_and_the_file_it_runs(workspace: Workspace) -> None:
    workspace.run("cp /bin/sleep mine; ./mine 600 & sleep 0.1")
    with pytest.raises(WorkspaceError) as error:
        workspace.write_file("mine", b"x")
    assert error.value.errno == 26  # text file busy
    time.sleep(0)
    assert workspace.run("kill %1").ok
