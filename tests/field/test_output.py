"""Group C: output that is not text, that comes in pieces, or that has no end."""

from __future__ import annotations

import random
import resource
from collections.abc import Callable

import pytest
from field.looks import execute, host_pid, megabytes, python, until

from bunshin_gym import ExitReason, ToolCall, Workspace
from bunshin_gym.tools.call import clip

pytestmark = pytest.mark.engine("native")
Start = Callable[..., Workspace]

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

# ---- C1: bytes that are not UTF-8

NOT_TEXT = {
    "half a character": b"\xed",
    "latin-1": "Gr\xfc\xdfe".encode("latin-1"),
    "utf-16": "hi".encode("utf-16"),
    "surrogate": b"\xed\xa0\x80",
    "overlong": b"\xc0\xaf",
    "too high": b"\xf4\x90\x80\x80",
    "continuations": b"\x80" * 10,
    "every byte": bytes(range(256)),
    "nul": b"a\0b",
    "broken in the middle": b"good \xff good",
}


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("tool", ["shell", "exec", "python"])
@pytest.mark.parametrize("kind", NOT_TEXT)
def test_c1_text_with_replacements_and_the_raw_bytes_beside(
    workspace: Workspace, kind: str, tool: str, stream: str
) -> None:
    data = NOT_TEXT[kind]
    workspace.write_file("/work/data", data)
    command = "cat data" + (" >&2" if stream == "stderr" else "")
    if tool == "shell":
        result = workspace.run(command)
    elif tool == "exec":
        result = execute(workspace, "sh", "-c", command)
    else:
        result = python(workspace, f"import sys; _ = sys.{stream}.buffer.write({data!r})")
    assert result.ok
    assert getattr(result, stream) == data
    assert result.output == data.decode(errors="replace")
    if kind != "nul":
        assert REPLACEMENT in result.output


@pytest.mark.parametrize("size", [1000, 1 << 20])
def test_c1_random_bytes(workspace: Workspace, size: int) -> None:
    result = workspace.run(f"head -c {size} /dev/urandom | tee f")
    assert result.ok
    assert result.stdout == workspace.read_file("/work/f")
    assert result.output == result.stdout.decode(errors="replace")


def test_c1_text_that_looks_like_an_escape_is_told_apart(workspace: Workspace) -> None:
    assert workspace.run(r"printf '\x80'").stdout == b"\x80"
    assert workspace.run(r"printf '%s' '\x80'").stdout == b"\\x80"


def test_c1_a_file_that_is_not_text(workspace: Workspace) -> None:
    data = bytes(range(256)) * 100
    workspace.write_file("/work/f", data)
    result = workspace.call(ToolCall("read_file", {"path": "/work/f"}))
    assert result.ok
    assert result.stdout == data
    assert result.output == data.decode(errors="replace")


def test_c1_names_that_are_not_text(workspace: Workspace) -> None:
    result = workspace.run(r"touch $'bad\xff\xfename'; ls")
    assert result.stdout == b"bad\xff\xfename\n"
    result = workspace.run(r"mkdir $'d\xff'; cd $'d\xff'; pwd")
    assert result.stdout == b"/work/d\xff\n"
    assert workspace.run("pwd").stdout == b"/work/d\xff\n"
    assert workspace.run("export V=$'\\xff'; exit 2").exit_code == 2
    assert workspace.run("pwd; printf $V").stdout == b"/work/d\xff\n\xff"


# ---- C2: characters that come in pieces


@pytest.mark.parametrize("character", ["≤", "é", "😀", "│"])
@pytest.mark.parametrize("tool", ["shell", "exec", "python"])
def test_c2_a_character_in_pieces(workspace: Workspace, character: str, tool: str) -> None:
    data = character.encode()
    code = f"import os, time\nfor i in range({len(data)}):\n n = os.write(1, {data!r}[i:i+1])\n time.sleep(0.1)\n"
    if tool == "shell":
        workspace.write_file("/work/p.py", code.encode())
        result = workspace.run("python3 p.py")
    elif tool == "exec":
        result = execute(workspace, "python3", "-c", code)
    else:
        result = python(workspace, code)
    assert result.output == character
    assert result.stdout == data


@pytest.mark.parametrize("character", ["─", "é", "😀"])
@pytest.mark.parametrize("shift", [0, 1, 2])
def test_c2_a_mebibyte_of_characters(workspace: Workspace, character: str, shift: int) -> None:
    count = ((1 << 20) - shift) // len(character.encode())
    workspace.write_file("/work/f", b"a" * shift + character.encode() * count)
    result = workspace.run("cat f")
    assert not result.truncated
    assert REPLACEMENT not in result.output
    assert result.output == "a" * shift + character * count
    result = execute(workspace, "python3", "-c", f"print('a' * {shift} + {character!r} * {count}, end='')")
    assert result.output == "a" * shift + character * count


@pytest.mark.parametrize("character", ["─", "é", "😀"])
@pytest.mark.parametrize("limit", [1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007])
def test_c2_a_cut_goes_through_no_character(start: Start, character: str, limit: int) -> None:
    workspace = start(output_limit=limit)
    workspace.write_file("/work/f", b"a" + character.encode() * 5000)
    for result in (
        workspace.run("cat f"),
        execute(workspace, "cat", "/work/f"),
        workspace.call(ToolCall("read_file", {"path": "/work/f"})),
    ):
        assert result.truncated
        assert REPLACEMENT not in result.output
        assert result.stdout_total == 1 + 5000 * len(character.encode())
        head, said, tail = result.output.partition("\n[... ")
        assert said
        left_out = int(tail.partition(" ")[0])
        kept = len(head.encode()) + len(tail.partition("...]\n")[2].encode())
        assert kept + left_out == result.stdout_total
        assert limit - 8 <= kept <= limit


def test_c2_clip_cuts_bytes_that_are_not_text_too() -> None:
    rng = random.Random(1)
    for _ in range(300):
        data = rng.randbytes(rng.randint(0, 300))
        kept, cut = clip(data, 100)
        assert cut == (len(data) > 100)
        assert len(kept) <= 100 + 40
        if not cut:
            assert kept == data


def test_c2_output_of_a_job_in_pieces(workspace: Workspace) -> None:
    result = workspace.run("(sleep .2; printf '\\xe2'; sleep .2; printf '\\x89\\xa4\\n') & :")
    seen = b""

    def whole() -> bool:
        nonlocal seen
        seen += workspace.read_output(result.call_id).stdout
        return seen.endswith(b"\n")

    assert until(whole)
    assert seen.decode() == "≤\n"


# ---- C4: output without end


def own_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.parametrize("tool", ["shell", "exec"])
def test_c4_five_gigabytes_pass_in_bounded_memory(start: Start, tool: str) -> None:
    workspace, pid = host_pid(start)
    before = own_megabytes()
    command = "yes | head -c 5G"
    result = (
        workspace.run(command, timeout=250) if tool == "shell" else execute(workspace, "sh", "-c", command, timeout=250)
    )
    assert result.exit_reason is ExitReason.EXITED
    assert result.truncated
    assert result.stdout_total == 5 << 30
    assert len(result.stdout) < (1 << 20) + 200
    assert result.stdout.startswith(b"y\ny\n")
    assert result.stdout.endswith(b"y\ny\n")
    assert megabytes(pid) < 64
    assert own_megabytes() - before < 64


@pytest.mark.parametrize(
    "command",
    [
        "cat /dev/zero",
        "cat /dev/zero >&2",
        "cat /dev/zero & cat /dev/zero >&2",
        "yes",
        "yes $(printf %010000d 0)",
        "cat /dev/urandom",
        "while :; do echo line; done",
        "find / / / / / / 2>&1; cat /dev/zero",
        "python3 -c 'while True: print(\"x\" * 100000)'",
    ],
)
@pytest.mark.parametrize("tool", ["shell", "exec"])
def test_c4_endless_output_ends_with_the_timeout(start: Start, command: str, tool: str) -> None:
    workspace, pid = host_pid(start)
    before = own_megabytes()
    result = (
        workspace.run(command, timeout=1) if tool == "shell" else execute(workspace, "bash", "-c", command, timeout=1)
    )
    assert (result.exit_code, result.exit_reason) == (124, ExitReason.TIMEOUT)
    assert result.truncated or "while :" in command
    assert result.stdout_total + result.stderr_total > 1 << 16
    assert len(result.stdout) < (1 << 20) + 200
    assert len(result.stderr) < (1 << 20) + 200
    assert megabytes(pid) < 64
    assert own_megabytes() - before < 64
    assert workspace.run("echo on").output == "on\n"


def test_c4_endless_output_of_python(start: Start) -> None:
    workspace, pid = host_pid(start)
    result = python(workspace, "while True: print('x' * 100000)", timeout=1)
    assert result.exit_reason is ExitReason.TIMEOUT
    assert result.truncated
    assert megabytes(pid) < 64
    assert python(workspace, "1 + 1").output == "2\n"


def test_c4_endless_output_in_the_background(start: Start) -> None:
    workspace, pid = host_pid(start)
    result = workspace.run("yes & cat /dev/zero >&2 & echo done", timeout=30)
    assert result.exit_reason is ExitReason.EXITED
    for i in range(20):
        assert workspace.run(f"echo {i}", timeout=30).output == f"{i}\n"
    later = workspace.read_output(result.call_id)
    assert later.stdout_total + later.stderr_total > 0
    assert len(later.stdout) < (1 << 20) + 200
    assert megabytes(pid) < 64
    assert workspace.run("kill %1 %2", timeout=30).ok


def test_c4_a_line_without_end(workspace: Workspace) -> None:
    result = workspace.run("head -c 100M /dev/zero | tr '\\0' x")
    assert result.stdout_total == 100 << 20
    assert result.truncated
    assert result.output.count("\n") == 2


def test_c4_a_thousand_calls_leave_pid_1_as_small_as_before(start: Start) -> None:
    workspace, pid = host_pid(start)
    for _ in range(200):
        workspace.run("head -c 1M /dev/zero")
    before = megabytes(pid)
    for _ in range(800):
        workspace.run("head -c 1M /dev/zero")
    assert megabytes(pid) - before < 8
