"""Group A: calls, pipes, background processes, timeouts."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

import pytest
from field.looks import comms, execute, host_pid, python, running, until

from bunshin_gym import ExitReason, Task, ToolCall, Workspace
from bunshin_gym.env import ShellEnv

pytestmark = pytest.mark.engine("native")
Start = Callable[..., Workspace]

LEFT_BEHIND = "86399"  # seconds: a sleep of this length in a list of processes is one of ours


# ---- A1 to A3: a background process holds the pipe


@pytest.mark.parametrize(
    "command",
    [
        "python3 -m http.server 0 & sleep .2; echo done",
        "(while :; do echo x; sleep .05; done) & echo done",
        "{ while :; do echo x; sleep .05; done; } & echo done",
        "f() { while :; do echo x; sleep .05; done; }; f & echo done",
        "coproc w { while :; do echo x >&2; sleep .05; done; }; echo done",
        "while :; do echo x; sleep .05; done | cat & echo done",
        "while :; do echo x; sleep .05; done > >(cat) & echo done",
        "trap '' HUP; (while :; do echo x; sleep .05; done) & disown; echo done",
        "nohup sh -c 'while :; do echo x; sleep .05; done' 2>&1 & echo done",
    ],
)
def test_a1_returns_when_the_foreground_ends_and_later_output_is_kept(workspace: Workspace, command: str) -> None:
    result = workspace.run(command, timeout=30)
    assert result.ok
    assert "done\n" in result.output
    if "http" in command:
        return
    later = b""

    def more() -> bool:
        nonlocal later
        piece = workspace.read_output(result.call_id)
        later += piece.stdout + piece.stderr
        return later.count(b"x\n") > 3

    assert until(more)
    assert workspace.run("echo mine").output == "mine\n"


@pytest.mark.parametrize("tool", ["shell", "exec", "python"])
def test_a1_in_every_tool(workspace: Workspace, tool: str) -> None:
    command = "(while :; do echo x; sleep .05; done) & echo done"
    if tool == "shell":
        result = workspace.run(command, timeout=30)
    elif tool == "exec":
        result = execute(workspace, "bash", "-c", command, timeout=30)
    else:
        result = python(workspace, f"import subprocess; _ = subprocess.run({command!r}, shell=True)", timeout=30)
    assert result.ok
    assert "done\n" in result.output
    assert until(lambda: b"x\n" in workspace.read_output(result.call_id).stdout)


def test_a1_output_of_two_jobs_is_not_mixed_up(workspace: Workspace) -> None:
    first = workspace.run("(while :; do echo one; sleep .02; done) & :")
    second = workspace.run("(while :; do echo two; sleep .02; done) & :")
    pieces = {first.call_id: b"", second.call_id: b""}

    def both() -> bool:
        for call in pieces:
            pieces[call] += workspace.read_output(call).stdout
        return all(len(piece) > 40 for piece in pieces.values())

    assert until(both)
    assert set((first.stdout + pieces[first.call_id]).split()) == {b"one"}
    assert set((second.stdout + pieces[second.call_id]).split()) == {b"two"}


@pytest.mark.parametrize(
    "background",
    [
        f"sleep {LEFT_BEHIND} &",
        f"sleep {LEFT_BEHIND} >/dev/null &",
        f"sleep {LEFT_BEHIND} >/dev/null 2>&1 &",
        f"sleep {LEFT_BEHIND} </dev/null >/dev/null &",
        f"sleep {LEFT_BEHIND} 2>/dev/null &",
        f"exec 7>&1; sleep {LEFT_BEHIND} >/dev/null 2>&1 & exec 7>&-;",
        f"(sleep {LEFT_BEHIND} &);",
        f"nohup sleep {LEFT_BEHIND} &",
    ],
)
@pytest.mark.parametrize("tool", ["shell", "exec"])
def test_a2_a_silent_holder_of_a_descriptor_does_not_hold_the_call(
    workspace: Workspace, background: str, tool: str
) -> None:
    command = f"{background} echo done"
    result = (
        workspace.run(command, timeout=30) if tool == "shell" else execute(workspace, "bash", "-c", command, timeout=30)
    )
    assert result.ok
    assert result.stdout == b"done\n"
    assert until(lambda: comms(workspace).count("sleep") == 1)


@pytest.mark.parametrize("wait", ["wait", "wait $!", "wait -n", "wait %1", "fg", "fg %1"])
def test_a3_waiting_for_a_job_really_times_out(workspace: Workspace, wait: str) -> None:
    result = workspace.run(f"set -m; sleep {LEFT_BEHIND} & {wait}", timeout=1)
    assert result.exit_reason is ExitReason.TIMEOUT
    assert result.exit_code == 124
    assert "sleep" not in comms(workspace)
    assert workspace.run("echo on").output == "on\n"


def test_a3_a_server_started_in_one_call_serves_the_next(workspace: Workspace) -> None:
    port = "import socket; s = socket.socket(); s.bind(('', 0)); print(s.getsockname()[1])"
    workspace.run(f'port=$(python3 -c "{port}")')
    result = workspace.run("python3 -m http.server $port >/dev/null 2>&1 & echo $!", timeout=30)
    assert result.ok
    pid = int(result.output)
    assert workspace.run(f"kill -0 {pid}").ok
    fetch = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:$port').status)"
    assert until(lambda: workspace.run(f'python3 -c "{fetch}" 2>/dev/null').output == "200\n")


def test_a3_a_timeout_spares_the_jobs_of_earlier_calls(workspace: Workspace) -> None:
    workspace.run(f"sleep {LEFT_BEHIND} & old=$!")
    result = workspace.run("sleep 600 & wait", timeout=1)
    assert result.exit_reason is ExitReason.TIMEOUT
    assert workspace.run("kill -0 $old && echo lives").output == "lives\n"
    assert comms(workspace).count("sleep") == 1


# ---- A5, A7: what is written while nobody reads yet


@pytest.mark.parametrize(
    "command",
    [
        f"setsid sleep {LEFT_BEHIND} & echo spawned",
        f"setsid -f sleep {LEFT_BEHIND}; echo spawned",
        f"setsid bash -c 'sleep {LEFT_BEHIND} & sleep {LEFT_BEHIND}' & echo spawned",
        f"setsid nohup sleep {LEFT_BEHIND} & disown -a; echo spawned",
    ],
)
@pytest.mark.parametrize("tool", ["shell", "exec"])
def test_a5_a_process_in_a_session_of_its_own_does_not_hold_the_call(
    workspace: Workspace, command: str, tool: str
) -> None:
    result = (
        workspace.run(command, timeout=30) if tool == "shell" else execute(workspace, "bash", "-c", command, timeout=30)
    )
    assert result.ok
    assert result.stdout == b"spawned\n"


@pytest.mark.parametrize(
    "command",
    [
        "head -c 2M /dev/zero | tr '\\0' e >&2; echo ok",
        "head -c 2M /dev/zero | tr '\\0' o; head -c 2M /dev/zero | tr '\\0' e >&2; echo ok",
        "for i in {1..64}; do printf %032768d $i; printf %032768d $i >&2; done; echo ok",
        "(head -c 2M /dev/zero | tr '\\0' e >&2) & head -c 2M /dev/zero | tr '\\0' o; wait; echo ok",
    ],
)
@pytest.mark.parametrize("tool", ["shell", "exec"])
def test_a5_both_streams_come_whole(start: Start, command: str, tool: str) -> None:
    workspace = start(output_limit=8 << 20)
    result = workspace.run(command) if tool == "shell" else execute(workspace, "bash", "-c", command)
    assert result.ok
    assert len(result.stderr) == result.stderr_total == 2 << 20
    assert result.stdout.endswith(b"ok\n")
    assert len(result.stdout) == result.stdout_total
    assert len(result.stdout) in (3, (2 << 20) + 3)
    assert not result.truncated
    assert len(result.output) == len(result.stdout) + len(result.stderr)


def test_a5_one_stream_is_in_exact_order_when_asked_for(start: Start) -> None:
    workspace = start(separate_stderr=False)
    result = workspace.run("for i in {1..500}; do echo o$i; echo e$i >&2; done")
    assert result.output == "".join(f"o{i}\ne{i}\n" for i in range(1, 501))
    assert result.stderr == b""
    code = "import sys\nfor i in range(500): print('o', i); print('e', i, file=sys.stderr)"
    program = execute(workspace, "python3", "-u", "-c", code)
    assert program.output == "".join(f"o {i}\ne {i}\n" for i in range(500))


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("tool", ["shell", "exec", "python"])
def test_a7_64_mib_stream_through_without_deadlock(workspace: Workspace, stream: str, tool: str) -> None:
    size = 64 << 20
    number = 1 if stream == "stdout" else 2
    command = f"head -c {size} /dev/zero | tr '\\0' a >&{number}; exit_code=$?; (exit $exit_code)"
    if tool == "shell":
        result = workspace.run(command)
    elif tool == "exec":
        result = execute(workspace, "bash", "-c", command)
    else:
        result = python(workspace, f"import sys\nfor _ in range(64): _ = sys.{stream}.write('a' * (1 << 20))")
    assert result.ok
    assert result.truncated
    assert getattr(result, f"{stream}_total") == size
    kept = getattr(result, stream)
    assert len(kept) < (1 << 20) + 200
    assert kept.startswith(b"a" * 1000)
    assert kept.endswith(b"a" * 1000)
    assert f"[... {size - (1 << 20)} bytes left out ...]".encode() in kept


@pytest.mark.parametrize(("size", "truncated"), [(0, False), (1, False), (65535, False), (65536, False), (65537, True)])
def test_a7_the_limit_itself_fits(start: Start, size: int, truncated: bool) -> None:
    workspace = start(output_limit=1 << 16)
    result = workspace.run(f"head -c {size} /dev/zero | tr '\\0' a")
    assert result.truncated is truncated
    assert result.stdout_total == size
    if not truncated:
        assert result.stdout == b"a" * size


# ---- A9 to A13: what a timeout must end

HOGS = {
    "busy": "python3 -c 'while True: pass'",
    "sleeping": f"sleep {LEFT_BEHIND}",
    "deaf": f"bash -c 'trap \"\" TERM INT HUP; while :; do sleep {LEFT_BEHIND}; done'",
    "deaf and busy": "python3 -c 'import signal as s\nfor n in (1, 2, 15): s.signal(n, s.SIG_IGN)\nwhile True: pass'",
    "stopped": f"bash -c 'kill -STOP $$; sleep {LEFT_BEHIND}'",
    "pipeline": f"sleep {LEFT_BEHIND} | cat | cat",
    "subshell": f"(sleep {LEFT_BEHIND}; echo more)",
    "substitution": f"x=$(sleep {LEFT_BEHIND})",
    "loop": f"while :; do sleep {LEFT_BEHIND}; done",
    "respawning": "while :; do sleep 0.001; done",
    "thread": "python3 -c 'import threading, time; threading.Thread(target=time.sleep, args=(9999,)).start()'",
    "vfork": 'python3 -c \'import subprocess; subprocess.run(["sleep", "86399"])\'',
    "setsid": f"setsid -w sleep {LEFT_BEHIND}",
    "daemon left": f"setsid -f sleep {LEFT_BEHIND}; sleep {LEFT_BEHIND}",
    "nohup": f"nohup sleep {LEFT_BEHIND} & wait",
    "double fork": f"(setsid bash -c '(sleep {LEFT_BEHIND} &) & exit' &); sleep {LEFT_BEHIND}",
    "double fork in python": (
        "python3 -c 'import os, time\n"
        "if os.fork() == 0:\n os.setsid()\n if os.fork() == 0: time.sleep(86399)\n os._exit(0)\n"
        "time.sleep(86399)'"
    ),
    "subreaper": (
        "python3 -c 'import ctypes, os, time\nctypes.CDLL(None).prctl(36, 1)\n"
        "if os.fork() == 0:\n if os.fork() == 0: time.sleep(86399)\n os._exit(0)\ntime.sleep(86399)'"
    ),
    "renamed": f"bash -c 'exec -a bunshin-init sleep {LEFT_BEHIND}'",
}


@pytest.mark.parametrize("tool", ["shell", "exec"])
@pytest.mark.parametrize("hog", HOGS)
def test_a9_a12_a13_nothing_of_a_call_outlives_its_timeout(workspace: Workspace, hog: str, tool: str) -> None:
    workspace.run("cd /tmp; plain=1; export given=2; f() { echo $plain$given; }; shopt -s extglob")
    if tool == "shell":
        result = workspace.run(HOGS[hog], timeout=0.7)
    else:
        result = execute(workspace, "bash", "-c", HOGS[hog], timeout=0.7)
    assert result.exit_reason is ExitReason.TIMEOUT
    assert result.exit_code == 124
    assert result.notice
    assert running(workspace) == []
    after = workspace.run("f; pwd; shopt extglob")
    assert after.output == "12\n/tmp\nextglob        \ton\n"
    assert after.notice == ""


def test_a9_python_gives_up_and_keeps_its_state(workspace: Workspace) -> None:
    python(workspace, "x = 41")
    for code in (
        "while True: pass",
        "import time; time.sleep(600)",
        "import subprocess; subprocess.run(['sleep', '600'])",
    ):
        result = python(workspace, code, timeout=1)
        assert result.exit_reason is ExitReason.TIMEOUT
        assert result.exit_code == 124
        assert python(workspace, "x + 1").output == "42\n"
    assert running(workspace) == []


def test_a9_timeouts_do_not_stack_up(workspace: Workspace) -> None:
    for _ in range(5):
        assert workspace.run("python3 -c 'while True: pass'", timeout=0.5).exit_reason is ExitReason.TIMEOUT
        assert execute(workspace, "sleep", "600", timeout=0.3).exit_reason is ExitReason.TIMEOUT
    assert running(workspace) == []


@pytest.mark.parametrize("tool", ["shell", "exec"])
@pytest.mark.parametrize(
    "command",
    [
        "(sleep 1; echo late > /work/f) & wait",
        "(sleep 1; echo late > /work/f) & disown; sleep 600",
        "nohup bash -c 'sleep 1; echo late > /work/f' >/dev/null 2>&1 & sleep 600",
        "setsid bash -c 'sleep 1; echo late > /work/f' & sleep 600",
        "sleep 1 | (cat; echo late > /work/f)",
        "sleep 1; echo late > /work/f",
        "while ! sleep 1; do :; done; echo late > /work/f",
        "sleep 1 || true; echo late > /work/f",
        "bash -c 'trap \"echo late > /work/f\" EXIT TERM INT HUP; sleep 1'",
    ],
)
def test_a10_nothing_is_written_after_a_timeout(workspace: Workspace, command: str, tool: str) -> None:
    if tool == "shell":
        result = workspace.run(command, timeout=0.4)
    else:
        result = execute(workspace, "bash", "-c", command, timeout=0.4)
    assert result.exit_reason is ExitReason.TIMEOUT
    time.sleep(1.2)
    assert workspace.run("ls /work").output == ""


def test_a13_a_shell_that_ignores_everything_is_replaced_and_says_so(workspace: Workspace) -> None:
    workspace.run("cd /tmp; export kept=yes")
    result = workspace.run("trap '' TERM INT HUP QUIT; while :; do :; done", timeout=1)
    assert result.exit_reason is ExitReason.TIMEOUT
    assert "fresh" in result.notice
    assert workspace.run("pwd; echo $kept").output == "/tmp\nyes\n"


def test_a13_a_python_that_ignores_everything_is_replaced_and_says_so(workspace: Workspace) -> None:
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    result = python(workspace, code, timeout=1)
    assert result.exit_reason is ExitReason.TIMEOUT
    assert "fresh" in result.notice
    assert python(workspace, "1 + 1").output == "2\n"


# ---- A15: nothing runs on while the verifier looks


@pytest.mark.parametrize(
    "command", [f"sleep {LEFT_BEHIND}", "while :; do date > /work/f; done", "(sleep 1; echo 1 > f) & wait"]
)
def test_a15_what_timed_out_is_dead_before_the_verifier_looks(command: str) -> None:
    seen: list[list[str]] = []

    def verifier(workspace: Workspace) -> float:
        seen.append(running(workspace))
        return 0.5

    task = Task("hang", "hang", verifier=verifier, step_limit=1, call_timeout=1.0)
    env = ShellEnv(task=task, engine="native")
    try:
        env.reset(seed=1)
        _, reward, terminated, truncated, info = env.step(command)
        assert (reward, terminated, truncated) == (0.5, False, True)
        assert info["exit_reason"] == "timeout"
        assert seen == [[]]
    finally:
        env.close()


# ---- A21: standard input

ASKING = [
    "cat",
    "read x",
    "python3 -c 'input()'",
    "ssh -V",
    "sort",
    "wc -c",
    "dd",
    "bash",
    "python3",
    "xargs echo",
    "tee /dev/null",
    "head -n 1",
    "while read -r line; do echo $line; done",
    "select x in a b; do break; done",
    "read -t 600 x",
    "mapfile lines",
    "read x < /dev/tty",
    "cat /dev/stdin",
    "cat < /dev/fd/0",
    "python3 -c 'import getpass; getpass.getpass()'",
    "rm -i /etc/hostname",
    "cp -i /etc/hostname /etc/hosts",
    "stty -a",
    "su -c true",
    "gdb -q",
]


@pytest.mark.parametrize("tool", ["shell", "exec"])
@pytest.mark.parametrize("command", ASKING)
def test_a21_who_asks_gets_the_end_of_input(workspace: Workspace, command: str, tool: str) -> None:
    result = (
        workspace.run(command, timeout=30) if tool == "shell" else execute(workspace, "bash", "-c", command, timeout=30)
    )
    assert result.exit_reason in (ExitReason.EXITED, ExitReason.SHELL_EXITED)
    assert workspace.run("echo on").output == "on\n"


@pytest.mark.needs("node")
def test_a21_node_too(workspace: Workspace) -> None:
    assert workspace.run("node", timeout=30).exit_reason is ExitReason.EXITED
    assert workspace.run('node -e \'process.stdin.on("end", () => console.log("end")).resume()\'').output == "end\n"


def test_a21_in_python(workspace: Workspace) -> None:
    result = python(workspace, "input()")
    assert result.exit_code == 1
    assert "EOFError" in result.output
    assert python(workspace, "import sys; sys.stdin.read()").output == "''\n"
    assert python(workspace, "import subprocess; subprocess.run(['cat']).returncode").output == "0\n"


@pytest.mark.parametrize("kind", ["empty", "open"])
def test_a21_an_open_silent_pipe_where_asked_for(workspace: Workspace, kind: str) -> None:
    look = (
        "import select, stat, os; print(stat.S_ISFIFO(os.fstat(0).st_mode), bool(select.select([0], [], [], 0.3)[0]))"
    )
    result = execute(workspace, "python3", "-c", look, stdin=kind)
    assert result.output == ("True False\n" if kind == "open" else "False True\n")
    waiting = execute(workspace, "cat", stdin=kind, timeout=1)
    assert waiting.exit_reason is (ExitReason.TIMEOUT if kind == "open" else ExitReason.EXITED)


# ---- A22, A23: what had been written before


def test_a22_streams_are_apart_and_bounded_each(start: Start) -> None:
    workspace = start(output_limit=1000)
    result = workspace.run("echo out; echo err >&2")
    assert (result.stdout, result.stderr, result.truncated) == (b"out\n", b"err\n", False)
    result = workspace.run("echo out; head -c 5000 /dev/zero | tr '\\0' e >&2")
    assert result.stdout == b"out\n"
    assert result.truncated
    assert (result.stdout_total, result.stderr_total) == (4, 5000)
    assert result.stderr == b"e" * 500 + b"\n[... 4000 bytes left out ...]\n" + b"e" * 500
    result = workspace.run("head -c 5000 /dev/zero | tr '\\0' e >&2; sleep 600", timeout=1)
    assert result.exit_reason is ExitReason.TIMEOUT
    assert result.truncated
    assert result.stderr_total == 5000


PARTIAL = {
    "shell": ("shell", {"command": "printf partial; sleep 600"}),
    "shell, error": ("shell", {"command": "printf partial >&2; sleep 600"}),
    "shell, function": ("shell", {"command": "f() { printf partial; sleep 600; }; f"}),
    "shell, child": ("shell", {"command": "bash -c 'printf partial; sleep 600'"}),
    "shell, loop": ("shell", {"command": "printf partial; while :; do :; done"}),
    "exec": ("exec", {"command": "printf partial; sleep 600"}),
    "exec, deaf": ("exec", {"command": "trap '' TERM INT; printf partial; while :; do :; done"}),
    "python": ("python", {"code": "import time; print('partial'); time.sleep(600)"}),
    "python, no line": ("python", {"code": "import time; print('partial', end='', flush=True); time.sleep(600)"}),
    "python, error": ("python", {"code": "import sys, time; print('partial', file=sys.stderr); time.sleep(600)"}),
    "python, child": ("python", {"code": "import os; os.system('printf partial; sleep 600')"}),
}


@pytest.mark.parametrize("case", PARTIAL)
def test_a23_partial_output_survives_a_timeout(workspace: Workspace, case: str) -> None:
    tool, args = PARTIAL[case]
    result = workspace.call(ToolCall(tool, args), timeout=1)
    assert "partial" in result.output
    assert b"partial" in (result.stderr if "error" in case else result.stdout)
    assert result.exit_code == 124
    assert result.exit_reason is ExitReason.TIMEOUT


def test_a23_partial_output_survives_an_interrupt(workspace: Workspace) -> None:
    threading.Timer(1, workspace.interrupt).start()
    result = workspace.run("printf partial; sleep 600", timeout=60)
    assert result.stdout == b"partial"
    assert result.exit_reason is ExitReason.TIMEOUT
    assert "interrupt" in result.notice


# ---- A24: a shell in the shell


@pytest.mark.parametrize("tool", ["shell", "exec"])
@pytest.mark.parametrize(
    "command",
    [
        "bash -ic 'echo hi'",
        "bash -lic 'echo hi'",
        "bash -lc 'echo hi'",
        "bash -i -c 'set -m; (echo hi) & wait' 2>/dev/null | grep hi",
        "sh -ic 'echo hi'",
        "bash -ic 'bash -ic \"echo hi\"'",
        "bash -i <<< 'echo hi'",
        "set -m; bash -ic 'echo hi'",
        "script -qec 'bash -ic \"echo hi\"' /dev/null",
        "env -i bash -ic 'echo hi'",
        "setsid -w bash -ic 'echo hi'",
    ],
)
def test_a24_an_interactive_shell_in_a_call_returns(workspace: Workspace, command: str, tool: str) -> None:
    result = (
        workspace.run(command, timeout=30) if tool == "shell" else execute(workspace, "bash", "-c", command, timeout=30)
    )
    assert result.exit_reason is ExitReason.EXITED
    assert result.exit_code == 0
    assert b"hi" in result.stdout
    assert workspace.run("echo on").stdout == b"on\n"


# ---- A33: one stuck workspace and the others


def test_a33_a_stopped_workspace_does_not_hold_another(start: Start) -> None:
    stuck, pid = host_pid(start)
    other = start()
    os.kill(pid, signal.SIGSTOP)
    results = []
    caller = threading.Thread(target=lambda: results.append(stuck.run("echo late", timeout=60)))
    caller.start()
    try:
        for i in range(5):
            assert other.run(f"echo {i}", timeout=30).output == f"{i}\n"
        third = start()
        with other.snapshot() as snapshot:
            (child,) = snapshot.fork(1)
            assert isinstance(child, Workspace)
            assert child.run("echo forked").output == "forked\n"
            child.close()
        third.close()
        assert results == []
    finally:
        os.kill(pid, signal.SIGCONT)
    caller.join(60)
    assert [result.output for result in results] == ["late\n"]


def test_a33_a_stopped_workspace_can_be_closed(start: Start) -> None:
    stuck, pid = host_pid(start)
    os.kill(pid, signal.SIGSTOP)
    results = []
    caller = threading.Thread(target=lambda: results.append(stuck.run("echo never", timeout=60)))
    caller.start()
    time.sleep(0.3)
    stuck.close()
    caller.join(60)
    assert [result.exit_reason for result in results] == [ExitReason.WORKSPACE_LOST]


@pytest.mark.parametrize(
    "command", [f"sleep {LEFT_BEHIND}", "while :; do :; done", "kill -STOP $$", "mkfifo p; read x < p"]
)
def test_a33_a_hanging_call_does_not_hold_another_workspace(start: Start, command: str) -> None:
    stuck, other = start(), start()
    results = []
    caller = threading.Thread(target=lambda: results.append(stuck.run(command, timeout=120)))
    caller.start()
    for i in range(5):
        assert other.run(f"echo {i}", timeout=30).output == f"{i}\n"
    assert results == []

    def interrupted() -> bool:
        stuck.interrupt()  # nothing happens before the call has begun
        caller.join(0.5)
        return not caller.is_alive()

    assert until(interrupted)
    assert [result.exit_reason for result in results] == [ExitReason.TIMEOUT]
    assert stuck.run("echo on").output == "on\n"
