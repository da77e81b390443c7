"""The twin: what it does know it does as bash and Python do; what it does not know it says."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from bunshin_gym import ExitReason, ToolCall, UnsupportedResource, Workspace

AS_BASH = [
    "echo a  b   c",
    "echo 'a  b' \"c  d\"",
    "echo -n no newline",
    "echo -e 'a\\tb'",
    "X='a  b'; echo $X; echo \"$X\"",
    "X=1 Y=2; echo $X$Y ${X}0 ${Z:-none} $Z.",
    "X=5; echo $((X * 2 + 1)) $((7 / 2)) $((7 % 3))",
    "echo $(echo inner; echo more) \"$(printf 'x\\ny')\"",
    'echo "it\'s" \'a "quote"\' \\$HOME',
    "true && echo yes || echo no",
    "false && echo yes || echo no",
    "! false && echo negated",
    "false; echo $?; nosuch 2>/dev/null; echo $?",
    "(X=2; echo $X); echo .$X",
    "{ echo a; echo b; } | wc -l",
    "(cd /; pwd); cd /tmp; pwd",
    "seq 10 | head -n 3 | tail -n 1",
    "seq 2 2 8",
    "printf '%s-%s\\n' a b c d",
    "printf '%d %5s|%-5s|%x\\n' 7 r l 255",
    "printf 'no newline'",
    "echo a > f; echo b >> f; cat f; wc -c < f",
    "echo out; echo err >&2",
    "echo to-both > f 2>&1; cat f",
    "ls nothing 2>/dev/null || echo missing",
    "mkdir -p d/e; touch d/x d/.hidden; ls d; ls -A d",
    "touch b a c; echo *; echo [; ls",
    "touch one.txt two.txt x.md; echo *.txt; echo *.none",
    "echo a#b # comment",
    "echo a \\\n  b",
    "echo one\n\necho two",
    "test -d . && test ! -f . && [ a = a ] && [ 1 -lt 2 ] && echo all",
    "export A=1; bash -c 'echo $A $B'; B=2; bash -c 'echo .$B'",
    "A=1 env | grep ^A=",
    "X=1; unset X; echo .$X",
    "printf 'b\\na\\nc\\n' | sort; printf '10\\n9\\n' | sort -n",
    "printf 'b\\na\\nb\\n' | sort -u | grep -c b",
    "read line < /dev/null; echo $?",
    "echo a | cat - | tee copy; cat copy",
    "cp f g 2>/dev/null; echo $?",
    "echo data > f; mv f g; cat g; ls",
    "rm nothing 2>/dev/null; echo $?; rm -f nothing; echo $?",
    "mkdir d; rm d 2>/dev/null; echo $?; rm -r d; echo $?",
    "printf 'a b\\nc\\n' > f; wc f; wc -lw f; wc -c f f",
    "exit 3",
    "echo $((1 + 1",
    "echo 'open",
]


@pytest.mark.parametrize("command", AS_BASH)
def test_as_bash_does(command: str, workspace: Workspace, tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash to compare with")
    home = tmp_path / "tmp"
    home.mkdir()
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/root", "LC_ALL": "C"}
    done = subprocess.run([bash, "-c", command], cwd=home, env=environment, capture_output=True, check=False)
    ours = workspace.run(command)
    expected = done.stdout.replace(str(home).encode(), b"/work")
    if done.returncode == 2 and not done.stdout:  # a syntax error: the wording is each shell's own
        assert (ours.exit_code, ours.stdout) == (2, b"")
    else:
        assert (ours.exit_code, ours.stdout) == (done.returncode, expected)


@pytest.mark.parametrize(
    "command",
    [
        "if true; then echo a; fi",
        "for i in 1 2; do echo $i; done",
        "while true; do :; done",
        "f() { echo a; }; f",
        "cat <<EOF\na\nEOF",
        "echo `pwd`",
        "echo ${X%%y}",
        "(sleep 1; echo late) &",
        "echo a |",
        "&& echo a",
        "echo >",
    ],
)
def test_what_is_beyond_it_is_refused_in_a_line(command: str, workspace: Workspace) -> None:
    result = workspace.run(command)
    assert result.exit_code == 2
    assert result.stderr.startswith(b"bash: ")
    assert workspace.run("echo on").output == "on\n"


def test_unknown_options_are_refused(workspace: Workspace) -> None:
    assert workspace.run("ls -Z").exit_code == 2


def test_an_exit_restarts_the_shell(workspace: Workspace) -> None:
    workspace.run("cd /tmp; A=1; export B=2")
    result = workspace.run("exit 3; echo never")
    assert (result.exit_code, result.exit_reason, result.output) == (3, ExitReason.SHELL_EXITED, "")
    assert "fresh" in result.notice
    assert workspace.run("pwd; echo $A.$B").output == "/tmp\n.2\n"


def test_a_timeout_ends_what_the_call_started_and_nothing_else(workspace: Workspace) -> None:
    workspace.run("sleep 500 &")
    workspace.run("sleep 600 & sleep 700", timeout=0.1)
    assert [p.comm for p in workspace.processes()].count("sleep") == 1


def test_wait_really_waits(workspace: Workspace) -> None:
    assert workspace.run("sleep 600 & wait", timeout=0.2).exit_reason is ExitReason.TIMEOUT
    assert workspace.run("sleep 0.05 & wait; echo done").output == "done\n"


def test_exec_is_a_process_apart(workspace: Workspace) -> None:
    workspace.run("X=1; export Y=2; cd /tmp")
    call = ToolCall("exec", {"command": "echo $X.$Y.$Z; pwd; cd /; exit 5", "env": {"Z": "3"}})
    result = workspace.call(call)
    assert (result.output, result.exit_code, result.exit_reason) == (".2.3\n/work\n", 5, ExitReason.EXITED)
    assert workspace.call(ToolCall("exec", {"argv": ["echo", "$X", "a b"]})).output == "$X a b\n"
    assert workspace.call(ToolCall("exec", {"argv": ["nosuch"]})).exit_code == 127
    assert workspace.call(ToolCall("exec", {"argv": ["pwd"], "cwd": "/tmp"})).output == "/tmp\n"
    assert workspace.call(ToolCall("exec", {"argv": ["pwd"], "cwd": "/nope"})).exit_code == 127
    assert workspace.run("pwd").output == "/tmp\n"


@pytest.mark.parametrize(
    ("code", "output", "exit_code"),
    [
        ("x = 41; x + 1", "42\n", 0),
        ("print('a'); print('b')", "a\nb\n", 0),
        ("None", "", 0),
        ("", "", 0),
        ("sum(i * i for i in range(4))", "14\n", 0),
        ("total = 0\nfor i in range(5):\n    total += i\ntotal", "10\n", 0),
        ("1 / 0", "ZeroDivisionError: division by zero\n", 1),
        ("x =", "SyntaxError", 1),
        ("import os", "has no Import", 1),
        ("def f(): pass", "has no FunctionDef", 1),
        ("().__class__", "has no '__class__'", 1),
        ("'{0.__class__}'.format(1)", "has no 'format'", 1),
        ("open('/etc/passwd')", "NameError", 1),
        ("__builtins__", "has no", 1),
    ],
)
def test_python(workspace: Workspace, code: str, output: str, exit_code: int) -> None:
    result = workspace.call(ToolCall("python", {"code": code}))
    assert result.exit_code == exit_code
    assert (result.output == output) if exit_code == 0 else (output in result.output)


def test_python_keeps_its_variables_and_its_time(workspace: Workspace) -> None:
    def run(code: str) -> str:
        return workspace.call(ToolCall("python", {"code": code}), timeout=0.3).output

    run("x = [1]")
    assert workspace.call(
        ToolCall("python", {"code": "while True:\n  try:\n    1/0\n  except Exception: pass"}), timeout=0.2
    )
    assert run("x") == "[1]\n"


def test_what_python_cannot_take_along_is_refused_by_name(workspace: Workspace) -> None:
    workspace.call(ToolCall("python", {"code": "g = (i for i in [1, 2])"}))
    with pytest.raises(UnsupportedResource, match=r"pid 3 .python. holds variable 'g', a generator") as caught:
        workspace.snapshot()
    assert (caught.value.pid, caught.value.comm) == (3, "python")
    assert workspace.call(ToolCall("python", {"code": "next(g)"})).output == "1\n"


def test_file_tools(workspace: Workspace) -> None:
    wrote = workspace.call(ToolCall("write_file", {"path": "d/a.txt", "content": "é"}))
    assert wrote.output == "wrote 2 bytes to d/a.txt\n"
    read = workspace.call(ToolCall("read_file", {"path": "/work/d/a.txt"}))
    assert (read.output, read.stdout) == ("é", "é".encode())
    assert workspace.call(ToolCall("read_file", {"path": "nope"})).exit_code == 1


def test_memory_shared_with_the_source_is_not_private(workspace: Workspace) -> None:
    workspace.write_file("/tmp/big", b"x" * (8 << 20))
    child = workspace.fork(1)[0]
    assert isinstance(child, Workspace)
    with child:
        before = child.memory()
        assert before.private < 8 << 20 < before.rss
        child.write_file("/tmp/big", b"y" * (8 << 20))
        assert child.memory().private > 8 << 20
