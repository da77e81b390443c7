"""Group B: the shell session."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest
from field.looks import comms, execute, python, until

from bunshin_gym import ExitReason, Workspace, WorkspaceBusy, WorkspaceError
from bunshin_gym.errors import InvalidToolCall

pytestmark = pytest.mark.engine("native")
Start = Callable[..., Workspace]


def answers(workspace: Workspace) -> bool:
    """Whether the next call's output is its own, and nothing but that."""
    result = workspace.run("echo mine")
    return (result.stdout, result.stderr, result.exit_code) == (b"mine\n", b"", 0)


# ---- B1: programs that want the screen


@pytest.mark.needs("git")
def test_b1_git_pages_nothing(workspace: Workspace) -> None:
    workspace.run("git init -q . && git config user.email a@b && git config user.name n")
    for i in range(60):
        workspace.write_file("/work/f", f"{i}\n".encode() * 100)
        workspace.run(f"git add f && git commit -qm 'commit {i}'")
    log = workspace.run("git log", timeout=30)
    assert log.ok
    assert log.output.count("\ncommit ") == 59
    assert workspace.run("git diff HEAD~30", timeout=30).ok
    assert workspace.run("git -p log --oneline | wc -l").output == "60\n"
    assert workspace.run("git commit --amend", timeout=30).ok
    assert workspace.run("git rebase -i HEAD~3", timeout=30).ok
    assert answers(workspace)


@pytest.mark.parametrize(
    "command",
    [
        "seq 5000 | less",
        "seq 5000 | more",
        "seq 5000 > f; less f",
        "seq 5000 > f; more f",
        "man bash",
        "python3 -c 'import pydoc; pydoc.pager(\"line\\n\" * 5000)'",
        "python3 -c 'help(str)'",
        "top -b -n 1",
        "vi f",
        "vim -es f -c q",
        "$EDITOR f",
        "tmux new-session 'sleep 600'",
        "reset",
        "clear",
    ],
)
def test_b1_a_program_for_the_screen_returns(workspace: Workspace, command: str) -> None:
    editor = command == "vi f"  # which may look for a terminal for ever, and must not take the session along
    result = workspace.run(command, timeout=2 if editor else 30)
    assert result.exit_reason is ExitReason.EXITED or editor
    assert answers(workspace)


@pytest.mark.parametrize(
    "command",
    [
        "script -qc 'seq 5000 | less' /dev/null",
        "script -qc 'PAGER=less man bash' /dev/null",
        "script -qc 'vi f' /dev/null",
        "script -qc 'top' /dev/null",
        "script -qc 'bash' /dev/null",
        'python3 -c \'import pty; pty.spawn(["sleep", "600"])\'',
    ],
)
def test_b1_a_program_on_a_terminal_of_its_own_never_gets_the_next_command(workspace: Workspace, command: str) -> None:
    result = workspace.run(command, timeout=2)
    assert result.exit_reason in (ExitReason.EXITED, ExitReason.TIMEOUT)
    for i in range(3):
        after = workspace.run(f"echo {i}")
        assert (after.output, after.exit_code) == (f"{i}\n", 0)


def test_b1_the_variables_that_say_so(workspace: Workspace) -> None:
    for name in ("PAGER", "GIT_PAGER", "MANPAGER"):
        assert workspace.run(f"echo ${name}").output == "cat\n"
        assert execute(workspace, "printenv", name).output == "cat\n"
    assert python(workspace, "import os; print(os.environ['PAGER'])").output == "cat\n"


# ---- B4: the end of a shell


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("exit 3", 3),
        ("exit", 0),
        ("false; exit", 1),
        ("exit 259", 3),
        ("exit -1", 255),
        ("exec true", 0),
        ("exec bash -c 'exit 5'", 5),
        ("f() { exit 6; }; f", 6),
        ("trap 'echo bye' EXIT; exit 7", 7),
        ("set -e; false; echo never", 1),
        ("set -u; (echo $nothing_of_that_name); exit 9", 9),
        ("kill -9 $$", 137),
        ("kill -HUP $$", 129),
        ("kill -SEGV $$; sleep 5", 139),
        ("sleep 86399 & exit 3", 3),
        ("exec 1>&- 2>&-; exit 3", 3),
        ("exec 0<&-; exit 3", 3),
        ("source /dev/stdin <<< 'exit 3'", 3),
        ("eval 'exit 3'", 3),
        ("set -m; exit 3", 3),
        ("stty -a 2>/dev/null; logout; exit 3", 3),
    ],
)
def test_b4_the_code_comes_back_and_a_fresh_shell_goes_on(workspace: Workspace, command: str, code: int | None) -> None:
    workspace.run("mkdir -p /tmp/at && cd /tmp/at; export given='a b\nc'; plain=1")
    result = workspace.run(command, timeout=30)
    assert result.exit_reason is ExitReason.SHELL_EXITED
    if code is not None:
        assert result.exit_code == code
    assert "fresh" in result.notice
    after = workspace.run('pwd; echo "$given/$plain"')
    assert after.output == "/tmp/at\na b\nc/\n"
    assert after.exit_code == 0
    assert answers(workspace)


@pytest.mark.parametrize(
    "command",
    ["(exit 3)", "bash -c 'exit 3'", "false || (exit 3)", "return 3", "f() { return 3; }; f", "! true; (exit 3)"],
)
def test_b4_a_code_alone_does_not_end_the_shell(workspace: Workspace, command: str) -> None:
    workspace.run("plain=1")
    result = workspace.run(command)
    assert (result.exit_code, result.exit_reason, result.notice) == (3, ExitReason.EXITED, "")
    assert workspace.run("echo $?").output == "3\n"
    assert workspace.run("echo $plain").output == "1\n"


def test_b4_an_unbound_variable_ends_the_command_and_not_the_shell(workspace: Workspace) -> None:
    result = workspace.run("plain=1; set -u; echo $nothing_of_that_name; echo never")
    assert (result.exit_code, result.stdout) == (1, b"")
    assert workspace.run("set +u; echo $plain").output == "1\n"


def test_b4_output_before_the_end_is_whole(workspace: Workspace) -> None:
    result = workspace.run("seq 50000; echo last >&2; exit 4")
    assert result.exit_code == 4
    assert result.stdout == b"".join(b"%d\n" % i for i in range(1, 50001))
    assert result.stderr == b"last\n"


def test_b4_exit_twenty_times(workspace: Workspace) -> None:
    workspace.run("export n=0; cd /tmp")
    for i in range(1, 21):
        assert workspace.run(f"export n=$((n+1)); exit {i}").exit_code == i
    assert workspace.run("echo $n; pwd").output == "20\n/tmp\n"


def test_b4_a_shell_that_dies_between_calls(workspace: Workspace) -> None:
    pid = int(workspace.run("export given=1; echo $$").output)
    assert execute(workspace, "kill", "-9", str(pid)).ok
    assert until(lambda: pid not in [process.pid for process in workspace.processes()])
    result = workspace.run("echo $given")
    assert result.output == "1\n"
    assert "fresh" in result.notice


def test_b4_python_ends_too(workspace: Workspace) -> None:
    python(workspace, "x = 1")
    result = python(workspace, "import sys; sys.exit(3)")
    assert result.exit_code == 3
    result = python(workspace, "import os; os._exit(5)")
    assert (result.exit_code, result.exit_reason) == (5, ExitReason.SHELL_EXITED)
    assert "fresh" in result.notice
    assert python(workspace, "'x' in globals()").output == "False\n"


# ---- B5: after a timeout

HANGS = [
    "sleep 100",
    "while :; do :; done",
    "while :; do sleep 0.01; done",
    "while true; do read x; done",
    "until false; do cat /dev/null; done",
    "cat /dev/zero > /dev/null",
    "bash -c 'trap \"\" INT TERM; while :; do :; done'",
    "sleep 100 | cat",
    "cat <(sleep 100)",
    "x=$(sleep 100)",
    "sleep 100 & wait",
    "set -m; sleep 100 & fg",
    "kill -STOP $$",
    "mkfifo p; cat < p",
    "mkfifo p; echo > p",
    "mkfifo p; exec 5< p",
    "mkfifo p; source p",
    "read -t 1000 x < <(sleep 100)",
    "coproc sleep 100; read x <&${COPROC[0]}",
    "for ((;;)); do :; done",
    "f() { f; }; while :; do sleep 100; done",
    "(sleep 100; echo more); echo more",
    "{ sleep 100; }; echo more",
    "sleep 100 || sleep 100 || sleep 100",
    "sleep 100; sleep 100; sleep 100",
    "set -m; sleep 100",
    "trap 'true' CHLD; sleep 100",
    "eval 'sleep 100'",
    "source <(echo sleep 100)",
    "sleep 100 2>&1 | tee f",
    "exec 3>&1; sleep 100 >&3",
    "PROMPT_COMMAND='echo prompt'; sleep 100",
    "flock f sleep 100",
    "printf -v x %0900000000d 1; while :; do x=$x$x; done",
    "[[ $(printf a%.0s {1..40}) =~ ^(a+)+b$ ]]; sleep 100",
    "shopt -s huponexit; sleep 100",
    "time sleep 100",
    "! sleep 100",
    "if sleep 100; then :; fi; echo more",
    "case $(sleep 100) in x) ;; esac",
    "arr=(); while :; do arr+=(x); done",
]


@pytest.mark.parametrize("command", HANGS)
def test_b5_the_next_command_works_at_once(workspace: Workspace, command: str) -> None:
    workspace.run("cd /tmp; plain=1; export given=2")
    result = workspace.run(command, timeout=0.6)
    assert (result.exit_code, result.exit_reason) == (124, ExitReason.TIMEOUT)
    after = workspace.run("pwd; echo $given$plain", timeout=30)
    assert after.exit_reason is ExitReason.EXITED
    # A shell that had to be replaced has only what was exported, and has said so.
    assert after.output == ("/tmp\n2\n" if "fresh" in result.notice else "/tmp\n21\n")
    assert answers(workspace)


@pytest.mark.parametrize(
    "command",
    [
        "trap 'echo trapped' INT; while :; do sleep 100; done",
        "exec sleep 100",
        "exec 0<&-; sleep 100",
        "trap '' INT; sleep 100; sleep 100",
    ],
)
def test_b5_also_where_the_shell_itself_resists(workspace: Workspace, command: str) -> None:
    workspace.run("cd /tmp; export given=2")
    result = workspace.run(command, timeout=0.6)
    assert (result.exit_code, result.exit_reason) == (124, ExitReason.TIMEOUT)
    assert workspace.run("pwd; echo $given", timeout=30).output == "/tmp\n2\n"
    assert answers(workspace)


def test_b5_twenty_timeouts_in_a_row(workspace: Workspace) -> None:
    workspace.run("plain=0; f() { plain=$((plain + 1)); sleep 100; }")
    for _ in range(20):
        assert workspace.run("f", timeout=0.1).exit_reason is ExitReason.TIMEOUT
    assert workspace.run("echo $plain").output == "20\n"
    assert [process.comm for process in workspace.processes()] == ["bunshin-init", "bash"]


# ---- B6: bytes as they are


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (r"printf '\x80\xff'", b"\x80\xff"),
        (r"printf '\\x80\\xff'", b"\\x80\\xff"),
        ("printf ''", b""),
        ("printf x", b"x"),
        ("echo", b"\n"),
        (r"printf '\r\n'", b"\r\n"),
        (r"printf 'a\rb'", b"a\rb"),
        (r"printf '\0a\0'", b"\0a\0"),
        (r"printf '\e[31mred\e[0m'", b"\x1b[31mred\x1b[0m"),
        (r"printf '\e]0;title\a\x04\x03\x1a'", b"\x1b]0;title\x07\x04\x03\x1a"),
        (r"printf '$ \n> \n# '", b"$ \n> \n# "),
        (r"printf '\n\n\n'", b"\n\n\n"),
        (r"printf '  \t '", b"  \t "),
        ("echo EOF; echo __bunshin_end 0 r", b"EOF\n__bunshin_end 0 r\n"),
        ("PS1='prompt> '; PS2='more> '; echo x", b"x\n"),
        ("set -m; set -b; sleep 0.01 & wait; echo x", b"x\n"),
        ("set -v; echo x; set +v", b"x\n"),
    ],
)
def test_b6_output_is_the_bytes_and_nothing_else(workspace: Workspace, command: str, expected: bytes) -> None:
    for _ in range(2):
        result = workspace.run(command)
        assert result.stdout == expected
        assert result.exit_code == 0
        assert result.output.startswith(expected.decode(errors="replace")) or result.stderr
    assert execute(workspace, "bash", "-c", command).stdout == expected
    assert answers(workspace)


def test_b6_read_finds_the_end(workspace: Workspace) -> None:
    assert workspace.run("read x; echo $?").output == "1\n"
    assert workspace.run("read -n 1 x; echo $?").output == "1\n"
    assert workspace.run("read -p 'sure? ' x; echo $?").stdout == b"1\n"


# ---- B10, B13: what a command may be


@pytest.mark.parametrize(
    ("command", "output", "code"),
    [
        ("python3 - <<'PY'\nprint(1)\nPY", "1\n", 0),
        ("cat <<EOF\na\nEOF", "a\n", 0),
        ("cat <<EOF\na\nEOF\n", "a\n", 0),
        ("cat <<-EOF\n\ta\n\tEOF", "a\n", 0),
        ("(cat <<EOF\na\nEOF\n)", "a\n", 0),
        ("cat <<A; cat <<B\na\nA\nb\nB", "a\nb\n", 0),
        ("cat <<< x", "x\n", 0),
        ("echo x # a comment", "x\n", 0),
        ("echo x #", "x\n", 0),
        ("# only a comment", "", 0),
        ("", "", 0),
        ("   \n\t\n", "", 0),
        ("\n\n echo x", "x\n", 0),
        ("echo x \\", "x \\\n", 0),  # as bash -c has it
        ("echo x \\\n", "x\n", 0),
        ("echo x;", "x\n", 0),
        ("echo x &&\necho y", "x\ny\n", 0),
        ("echo x |\ncat", "x\n", 0),
        ("echo x\necho y", "x\ny\n", 0),
        ("f() {\n echo x\n}\nf", "x\n", 0),
        ("if true\nthen\necho x\nfi", "x\n", 0),
        ('echo "a\nb"', "a\nb\n", 0),
        ("echo \"hi!\" 'a!b' !x !!", "hi! a!b !x !!\n", 0),
        ("echo ~+ {a,b} '~' | cut -d' ' -f2-", "a b ~\n", 0),
        ("echo 'ünïcode ☃'", "ünïcode ☃\n", 0),
        ("  echo x", "x\n", 0),
        ("alias e='echo x'\ne", "x\n", 0),
        ("#!/bin/sh\necho x", "x\n", 0),
        ("-x", None, 127),
        ("{", None, 2),
        ("(", None, 2),
        ("echo 'open", None, 2),
        ('echo "open', None, 2),
        ("echo `open", None, 2),
        ("echo $(open", None, 2),
        ("echo ${open", None, None),
        ("if true", None, 2),
        ("while :; do", None, 2),
        ("case x in", None, 2),
        ("f() {", None, 2),
        ("echo x &&", None, 2),
        ("echo x |", None, 2),
        (")", None, 2),
        ("fi", None, 2),
        ("cat <<EOF\nnever closed", None, 0),
        ("echo x >", None, 2),
        ("done", None, 2),
        (";;", None, 2),
        ("&", None, 2),
        ("echo a\r", "a\r\n", 0),
    ],
)
def test_b10_a_command_is_taken_as_it_is(
    workspace: Workspace, command: str, output: str | None, code: int | None
) -> None:
    workspace.run("plain=1")
    result = workspace.run(command, timeout=30)
    assert result.exit_reason is ExitReason.EXITED
    if output is not None:
        assert result.output == output
    elif code:
        assert result.stderr
    if code == 2:
        assert result.exit_code in (1, 2)
    elif code is not None:
        assert result.exit_code == code
    assert workspace.run("echo $plain").output == "1\n"
    assert answers(workspace)


def test_b10_a_nul_is_refused(workspace: Workspace) -> None:
    with pytest.raises((InvalidToolCall, WorkspaceError)):
        workspace.run("echo a\0b")
    assert answers(workspace)


@pytest.mark.parametrize("size", [4096, 1 << 16, 1 << 20, 16 << 20])
def test_b10_a_long_command(workspace: Workspace, size: int) -> None:
    text = "x" * size
    result = workspace.run(f"text='{text}'; echo ${{#text}}")
    assert result.output == f"{size}\n"
    assert workspace.run(f": {text}\necho on").output == "on\n"


def test_b10_names_the_session_uses_can_be_taken(workspace: Workspace) -> None:
    workspace.run("printf() { echo mine; }; source() { echo mine; }; export() { echo mine; }; cd() { echo mine; }")
    assert workspace.run("true").output == ""
    assert workspace.run("echo $PWD").output == "/work\n"


@pytest.mark.parametrize("path", ["/run/bunshin/*", "/run/*", "/tmp/* /run/bunshin"])
def test_b10_the_session_survives_the_removal_of_what_it_stands_on(workspace: Workspace, path: str) -> None:
    workspace.run("plain=1")
    workspace.run(f"rm -rf {path}", timeout=30)
    assert workspace.run("echo $plain", timeout=30).output == "1\n"
    workspace.run("exit", timeout=30)
    assert answers(workspace)
    assert python(workspace, "1 + 1", timeout=30).output == "2\n"


BODY = 'it\'s "quoted" `tick` $HOME ${x} $(date) \\ \\n \\\\ ! # % & | ; < > * ? [a] {b,c} ~ \t EOF EO\nEOF2 \' " ` \\'


def test_b13_a_heredoc_keeps_every_byte(workspace: Workspace) -> None:
    assert workspace.run(f"cat > f <<'EOF'\n{BODY}\nEOF").ok
    assert workspace.read_file("/work/f").decode() == BODY + "\n"


@pytest.mark.parametrize("seed", range(10))
def test_b13_any_body_in_any_tool(workspace: Workspace, seed: int) -> None:
    rng = random.Random(seed)
    body = "".join(rng.choice("'\"`$\\!#%&|;<>*?[]{}()~ \t\nabEOF☃é\x01\x7f") for _ in range(2000)) + "x"
    delimiter = f"END{seed}"
    assert workspace.run(f"cat > f <<'{delimiter}'\n{body}\n{delimiter}").ok
    assert workspace.read_file("/work/f").decode() == body + "\n"
    assert execute(workspace, "printf", "%s", body).stdout.decode() == body
    assert execute(workspace, "bash", "-c", 'printf %s "$V"', env={"V": body}).stdout.decode() == body
    assert python(workspace, f"x = {body!r}\nprint(x, end='')").stdout.decode() == body
    assert workspace.run("printf %s '" + body.replace("'", "'\\''") + "'").stdout.decode() == body


# ---- B16: the ground under one's feet


@pytest.mark.parametrize(
    "removal",
    [
        "rm -rf /work/d",
        "rm -rf ../d",
        "rmdir ../d",
        "mv /work/d /work/e && rm -rf /work/e",
        "python3 -c 'import shutil; shutil.rmtree(\"/work/d\")'",
    ],
)
def test_b16_a_removed_directory_is_left_with_a_notice(workspace: Workspace, removal: str) -> None:
    workspace.run("mkdir -p d && cd d; plain=1")
    workspace.run(removal)
    result = workspace.run("echo $?; pwd; python3 -c 'import os; print(os.getcwd())'")
    assert "/work/" in result.notice
    assert "removed" in result.notice
    assert result.stdout == b"0\n/work\n/work\n"
    assert workspace.run("cd / && pwd; echo $plain").output == "/\n1\n"
    assert workspace.run("pwd").notice == ""


def test_b16_removed_by_another_tool(workspace: Workspace) -> None:
    workspace.run("mkdir -p d/e/f && cd d/e/f")
    assert execute(workspace, "rm", "-rf", "/work/d").ok
    result = workspace.run("pwd")
    assert (result.output, result.exit_code) == ("/work\n", 0)
    assert "/work/d/e/f" in result.notice


def test_b16_removed_and_made_anew(workspace: Workspace) -> None:
    workspace.run("mkdir -p d && cd d")
    workspace.run("rm -rf ../d; mkdir ../d; touch ../d/new")
    result = workspace.run("ls")
    assert result.output == "new\n"
    assert "removed" in result.notice


def test_b16_the_last_status_is_kept(workspace: Workspace) -> None:
    workspace.run("mkdir -p d && cd d")
    workspace.run("rm -rf ../d; (exit 7)")
    assert workspace.run("echo $?").output == "7\n"


def test_b16_a_renamed_directory_is_not_left(workspace: Workspace) -> None:
    workspace.run("mkdir -p 'd (deleted)' d2; cd 'd (deleted)'")
    assert workspace.run("pwd").output == "/work/d (deleted)\n"
    workspace.run("cd ../d2; mv ../d2 ../d3")
    result = workspace.run("touch here; ls ../d3")
    assert (result.output, result.notice) == ("here\n", "")


def test_b16_a_fresh_shell_where_its_directory_is_gone(workspace: Workspace) -> None:
    workspace.run("mkdir -p d && cd d")
    workspace.run("rm -rf ../d; exit 3")
    result = workspace.run("pwd")
    assert (result.output, result.exit_code) == ("/work\n", 0)
    assert result.notice


def test_b16_even_the_first_directory_of_all(workspace: Workspace) -> None:
    workspace.run("rm -rf /work")
    result = workspace.run("pwd")
    assert (result.output, result.exit_code) == ("/\n", 0)
    assert execute(workspace, "pwd").output == "/\n"
    assert python(workspace, "1 + 1").output == "2\n"
    workspace.run("exit")
    assert workspace.run("cd / && pwd").output == "/\n"
    workspace.write_file("f", b"x")
    assert workspace.run("cat /work/f").output == "x"


def test_b16_a_directory_that_cannot_be_entered(workspace: Workspace) -> None:
    workspace.run("mkdir -p d && cd d && chmod 000 .")
    assert workspace.run("cd / && pwd").output == "/\n"
    result = execute(workspace, "pwd", cwd="/nowhere")
    assert result.exit_code == 127
    assert b"/nowhere" in result.stderr


def test_b16_a_fork_in_a_removed_directory(workspace: Workspace) -> None:
    workspace.run("mkdir -p d && cd d")
    workspace.run("rm -rf ../d")
    try:
        (child,) = workspace.fork(1)
    except WorkspaceError as refused:
        assert "d" in str(refused)  # by name, and the source runs on
    else:
        assert isinstance(child, Workspace), child
        assert child.run("pwd").output == "/work\n"
        child.close()
    assert workspace.run("pwd").output == "/work\n"


# ---- B21: one command at a time


@pytest.mark.parametrize("way_on", ["interrupt", "wait"])
def test_b21_a_second_command_is_told_what_runs_and_what_to_do(workspace: Workspace, way_on: str) -> None:
    length = 600 if way_on == "interrupt" else 2
    results = []
    caller = threading.Thread(target=lambda: results.append(workspace.run(f"sleep {length}; echo first", timeout=120)))
    caller.start()
    assert until(lambda: "sleep" in comms(workspace))
    for _ in range(3):
        with pytest.raises(WorkspaceBusy) as busy:
            workspace.run("echo second")
        assert f"sleep {length}" in str(busy.value)
        for way in ("wait", "interrupt", "timeout", "fork"):
            assert way in str(busy.value)
    if way_on == "interrupt":
        workspace.interrupt()
    caller.join(60)
    if way_on == "interrupt":
        assert results[0].exit_reason is ExitReason.TIMEOUT
    else:
        assert results[0].output == "first\n"
    assert answers(workspace)
