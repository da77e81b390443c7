from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bunshin_gym import ToolCall, ToolResult
from bunshin_gym.looks import agree, cacheable, of, seen, strict

SHARED = [
    "ls -la",
    "cat a.txt | grep x > out 2>&1",
    "cd /work && make",
    "python3 test.py",
    "pytest -q",
    "git log --date=short",
    "cat update.txt",
    "echo data",
    "cmd >&2",
    "cmd &>log",
    "a && b || c",
    "sed -i s/a/b/ datefile",
    "ls /usr/share/host",
    "grep -r time src",
    "cat <<'EOF'\nhello\nEOF",
    "echo date; echo 'date' \"curl\"",
    "cat > run.sh <<'EOF'\ndate; sleep 5 &\ncurl x\nEOF",
    "grep -rn 'random' src | head",
    "date -d @0 +%F",
    "date -d '2024-01-01 + 3 days'",
    "date -r Makefile",
    "touch -d '2 days ago' f",
    "RANDOM=1; echo x",
    "git log --oneline; git status; git stash list",
    "git add -A && git diff --cached",
    "pip list; pip show numpy",
    "npm test",
    "openssl x509 -in a.pem -noout -text",
    "python3 -c 'print(1)'",
    "python3 -m pytest -q tests",
    "python3 - <<'EOF'\nfrom datetime import timedelta\nprint(timedelta(3))\nEOF",
    "python3 -c 'import random; random.seed(3); print(random.random())'",
    "cat /proc/cpuinfo | head -1",
    "find . -name '*.py' -exec grep -l time {} +",
    "for f in *.txt; do wc -l $f; done",
    "awk '{print strftime(\"%F\", $1)}' log",
    "ls | xargs -n 1 wc -l",
    "echo done &>/dev/null",
    "env A=1 ls",
    "sort -u a | uniq -c",
    "type -t ls; command -v ls",
    'python3 -c "\nimport json\n\ntry:\n    print(f\'a {1}\\n\')\nexcept OSError:\n    x = \\"y\\"\n"',
    "kill %1; kill -l",
    "python3 -c 'print(sorted({1, 2}), len(set(\"ab\")), 3 in {3}, {1: 2})'",
    "git stash pop; git stash apply; git stash drop",
    "conda list; conda info",
    "nginx -t",
    "sqlite3 a.db 'select known, random from t'",
]
ALONE = [
    "date",
    "ls; date +%s",
    "echo $(date)",
    "/bin/date",
    "TZ=UTC date",
    "bash -c 'date'",
    "sudo date",
    "echo $RANDOM",
    "echo ${RANDOM}",
    "echo $$",
    "sleep 5 &",
    "sleep 5 & wait",
    "(python3 -m http.server &)",
    "nohup ./serve",
    "setsid -f sleep 3",
    "head -c 8 /dev/urandom",
    "mktemp",
    "curl http://localhost",
    "pip install x",
    "python3 -m pip install x",
    "apt-get update",
    "ps aux",
    "time make",
    "python3 -c 'import random; print(random.random())'",
    "python3 -c 'import time; print(time.time())'",
    "git commit -m x",
    "git pull",
    "cat /proc/loadavg",
    "timeout 5 curl x",
    "for i in 1 2; do date; done",
    "env -i A=1 timeout -k 3 5 nice -n 5 date",
    "x=$(cat <(date))",
    "if true; then (cd /x && date); fi",
    "f() { date; }; f",
    'echo "now: $(date)"',
    "bash -c \"cd x && bash -c 'date'\"",
    "eval date",
    "bash <<'EOF'\ndate\nEOF",
    "cat <<EOF\n$RANDOM $(uuidgen)\nEOF",
    "cat x | python3 - <<'EOF'\nimport time\nprint(time.time())\nEOF",
    "python3 <<EOF\nfrom datetime import datetime\nprint(datetime.now())\nEOF",
    "find . -exec date \\;",
    "ls | xargs -I{} curl {}",
    "coproc cat",
    "echo $((RANDOM % 3))",
    "cmd=date; $cmd",
    'bash -c "cd /some/where/long && $cmd"',
    "python3 -c \"import json; print(json.loads('[1]'), $x)\"",
    'eval "$cmd"',
    "type ls",
    "hash",
    "sort -R a",
    "shuf a",
    "openssl rand -hex 4",
    "openssl req -x509 -newkey rsa:2048 -nodes",
    "git -C /x commit -qm y",
    "git tag -a v1 -m x",
    "awk 'BEGIN { srand(); print rand() }'",
    "perl -e 'print time'",
    "node -e 'console.log(Date.now())'",
    "python3 -c 'import os; print(os.getpid())'",
    "python3 -c 'print(id(3))'",
    "nginx",
    "redis-server --daemonize yes",
    "tmux new -d",
    "date -d yesterday",
    "date -d now",
    "cat </proc/uptime",
    "exec 3<>/dev/tcp/localhost/80",
    "su -c date nobody",
    'bash -c "cd x\ndate"',
    "kill 4711",
    "kill -9 $(cat pid)",
    'python3 -c \'print({"a", "b"})\'',
    "python3 -c 'for x in set(\"ab\"): print(x)'",
    "useradd x",
    "git stash",
    "conda install numpy",
    "service nginx status",
    "service nginx start",
    "nginx -s reload",
    "sqlite3 a.db \"select datetime('now')\"",
    "sqlite3 a.db 'select * from t order by random()'",
]
STRICT = [
    "ls -l",
    "ls -lat /tmp",
    "ls -i",
    "ls --full-time",
    "ll",
    "stat f",
    "find . -newer f",
    "find . -printf '%t %p\\n'",
    "make -j2",
    "cd x && make test",
    "ninja",
    "cmake --build .",
    "tar czf a.tgz d",
    "rsync -a a/ b/",
    "cp -u a b",
    "[ a -nt b ]",
    "test a -ot b",
    "[[ a -nt b ]]",
    "[[ a -ef b ]]",
    "diff -u a b",
    "du -sh",
    "bash -c 'ls -l'",
    "python3 -c 'import os; print(os.stat(\"f\").st_mtime)'",
    "git diff-files",
    "date -r f",
    "find . -inum 3",
    "zip a.zip b",
    "gzip a",
]
LAX = [
    "ls",
    "ls -a",
    "cat f",
    "find . -name x",
    "cp a b",
    "[ -f a ]",
    "[[ a == b ]]",
    "diff a b",
    "echo make",
    "git diff",
    "grep -l make *",
    "python3 -c 'print(3)'",
    "pytest -q",
    "cat Makefile",
    "gcc -o a a.c",
    "tail -n 3 f",
    "head -l",
]


@pytest.mark.parametrize("command", STRICT)
def test_what_can_notice_times_and_inodes(command: str) -> None:
    assert strict(ToolCall("shell", {"command": command}))


@pytest.mark.parametrize("command", LAX)
def test_what_cannot(command: str) -> None:
    assert not strict(ToolCall("shell", {"command": command}))


@pytest.mark.parametrize(
    ("command", "output", "what"),
    [
        ("./report", "at {now:%Y-%m-%d %H:%M:%S}", "clock"),
        ("./report", "epoch {epoch}", "clock"),
        ("./report", "[{now:%Y-%m-%dT%H:%M:%S}.123Z] start", "clock"),
        ("./report", "written to /tmp/tmp.Ab3dEfGh1Z", "randomness"),
        ("./report", "in 2001-02-03 04:05:06, and 1600000000 before", ""),
        ("./report", "3 passed in 0.12s", ""),
        ("ls --full-time", "-rw-r--r-- 1 root root 3 {now:%Y-%m-%d %H:%M:%S} f", ""),
        ("cat ids", "5d6b2c9e-3f1a-4c7e-9b5d-0123456789ab", ""),
        ("ls -l; ./report", "-rw-r--r-- 1 root root 3 {now:%b %e %H:%M} f\nat {now:%Y-%m-%d %H:%M:%S}", "clock"),
        ("./report", "done at {there:%Y-%m-%dT%H:%M:%S}+09:00", "clock"),
        ("./report", "at {there:%Y-%m-%d %H:%M:%S}", ""),
        ("./report", "at {now:%Y-%m-%d %H:%M:%S} +0900", ""),
        ("./report", "Date: {now:%a, %d %b %Y %H:%M:%S} GMT", "clock"),
        ("./report", '1.2.3.4 - - [{there:%d/%b/%Y:%H:%M:%S} +0900] "GET /"', "clock"),
        ("./report", "wrote incident_{now:%Y%m%d_%H%M%S}.txt", "clock"),
        ("./report", "wrote incident_20250808_053830.txt", ""),
        ("./report", "started, pid 4711", "process ids"),
        ("./report", "int pid = fork(); pid: 0", ""),
        ("stat f", "Modify: {now:%Y-%m-%d %H:%M:%S}.123456789 +0000", ""),
    ],
)
def test_what_a_result_shows(command: str, output: str, what: str) -> None:
    now = time.time()
    at = datetime.fromtimestamp(now, UTC)
    text = output.format(now=at, there=at + timedelta(hours=9), epoch=int(now))
    assert seen(ToolCall("shell", {"command": command}), ToolResult(text, duration=0.5)) == what


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("cat a | sed s/a/b/ > c && cd /x && [ -f y ]", ""),
        ("find . -name x -exec rm {} +; timeout 5 env A=1 nice ls", ""),
        ("python3 -c 'print(3)'; bash -c 'echo x'", ""),
        ("cd x && ./run.sh a", "run.sh"),
        ("python3 -m pytest -q", "python3"),
        ("timeout 5 bash -x run.sh", "bash"),
        ("python3 test.py", "python3"),
        ("cat a | mytool", "mytool"),
        ("node app.js", "node"),
    ],
)
def test_what_is_taken_on_trust(command: str, program: str) -> None:
    assert of(ToolCall("shell", {"command": command})).unread == program


def test_a_look_at_a_broken_command_is_no_error() -> None:
    for text in ("", "(", "'", "$(", "<<EOF", "\udcff\0", "if", "a" * 100_000, "$((" * 500, "'" * 999, "{" * 3000):
        cacheable(ToolCall("shell", {"command": text}))
        cacheable(ToolCall("python", {"code": text}))


@pytest.mark.parametrize("command", SHARED)
def test_what_depends_on_the_state_alone_is_shared(command: str) -> None:
    assert cacheable(ToolCall("shell", {"command": command}))


@pytest.mark.parametrize("command", ALONE)
def test_what_looks_at_clock_chance_or_world_is_not(command: str) -> None:
    assert not cacheable(ToolCall("shell", {"command": command}))


@pytest.mark.parametrize(
    ("call", "shared"),
    [
        (ToolCall("read_file", {"path": "a"}), True),
        (ToolCall("read_file", {"path": "/proc/uptime"}), False),
        (ToolCall("write_file", {"path": "a", "content": "date &"}), True),
        (ToolCall("python", {"code": "x = 41"}), True),
        (ToolCall("python", {"code": "import random"}), False),
        (ToolCall("python", {"code": "import time; time.sleep(1)"}), False),
        (ToolCall("exec", {"argv": ["echo", "a & b"]}), True),
        (ToolCall("exec", {"argv": ["date"]}), False),
        (ToolCall("exec", {"command": "sleep 3 &"}), False),
    ],
)
def test_other_tools(call: ToolCall, shared: bool) -> None:
    assert cacheable(call) is shared


NOW = datetime.now(UTC) - timedelta(minutes=1)
BEFORE = NOW - timedelta(days=40)


@pytest.mark.parametrize(
    ("recorded", "replayed", "same"),
    [
        ("a\n", "a\n", True),
        ("a\n", "b\n", False),
        ("-rw-r--r-- 1 root root 3 {0:%b %e %H:%M} a", "-rw-r--r-- 1 root root 3 {1:%b %e %H:%M} a", True),
        ("-rw-r--r-- 1 root root 3 {0:%b %e %H:%M} a", "-rw-r--r-- 1 root root 4 {0:%b %e %H:%M} a", False),
        ("{0:%Y-%m-%d %H:%M:%S}.123 INFO", "{1:%Y-%m-%d %H:%M:%S}.456 INFO", True),
        ("{0:%Y-%m-%d} INFO", "{1:%Y-%m-%d} INFO", True),
        ("{0:%H:%M:%S} INFO", "{1:%H:%M:%S} INFO", True),
        # A time that is not one of now is a part of what the call says.
        ("born 1969-07-20", "born 1969-07-21", False),
        ("2001-02-03 04:05:06 INFO", "2001-02-03 04:05:07 INFO", False),
        ("a.c:12:34: error", "a.c:73:99: error", False),
        ("3 passed in 0.02s", "3 passed in 0.14s", True),
        ("3 passed in 0.02s", "2 passed in 0.02s", False),
        ("==== 3 passed in 0.02s ====", "=== 3 passed in 10.02s ===", True),
        ("real\t0m0.003s", "real\t0m1.203s", True),
        ("scale 5s", "scale 6s", False),
        ("mask 0x1234", "mask 0x1235", False),
        ("<object at 0x7f01aabbccdd>", "<object at 0x7f01aabb0000>", True),
        ("b\na", "a\nb", False),
    ],
)
def test_a_replay_agrees_but_for_durations_addresses_and_times_of_now(recorded: str, replayed: str, same: bool) -> None:
    ours, theirs = ToolResult(recorded.format(BEFORE, NOW)), ToolResult(replayed.format(BEFORE, NOW), duration=9.0)
    assert agree(ours, theirs) is same


@pytest.mark.parametrize(
    ("command", "free"),
    [("find .", True), ("grep -rn x .", True), ("ls -U", True), ("sort f", False), ("cat f", False)],
)
def test_the_order_of_lines_is_free_where_directories_are_listed(command: str, free: bool) -> None:
    look = of(ToolCall("shell", {"command": command}))
    assert agree(ToolResult("b\na"), ToolResult("a\nb"), look) is free
    assert not agree(ToolResult("b\na"), ToolResult("a\na"), look)


@pytest.mark.parametrize(
    ("code", "shared"),
    [
        ("import time; time.sleep(0.1)", True),
        ("import time as t; print(t.time())", False),
        ("from time import time; print(time())", False),
        ("import random; random.seed(1); print(random.random())", True),
        ("import random, uuid; random.seed(1); print(uuid.uuid4())", False),
        ("import os  # seed(1)\nprint(os.urandom(3))", False),
        ("import numpy as np; print(np.random.rand(3))", False),
        ("import numpy as np; np.random.seed(3); print(np.random.rand(3))", True),
        ("import numpy as np; print(np.random.default_rng(3).random())", True),
        ("import numpy as np; print(np.random.default_rng().random())", False),
        ("import datetime; print(datetime.date(2020, 1, 1))", True),
        ("import datetime; print(datetime.datetime.now())", False),
        ("import subprocess; subprocess.run(['ls'])", True),
        ("import subprocess; subprocess.Popen(['sleep', '9'])", False),
        ("from urllib.parse import quote; print(quote('a b'))", True),
        ("print time.time()", False),
        ("open('/proc/self/stat').read()", False),
    ],
)
def test_inline_python(code: str, shared: bool) -> None:
    assert cacheable(ToolCall("exec", {"argv": ["python3", "-c", code]})) is shared


def test_a_python_session_goes_on_with_what_it_has_imported() -> None:
    assert not cacheable(ToolCall("python", {"code": "import random as r"}))
    assert not cacheable(ToolCall("python", {"code": "random.random()"}))
    assert cacheable(ToolCall("python", {"code": "import json, os; os.listdir()"}))


def test_every_command_that_find_runs_is_looked_at() -> None:
    assert not cacheable(ToolCall("shell", {"command": "find . -exec ls {} + -exec date \\;"}))


@pytest.mark.parametrize(
    ("command", "recorded", "again", "same"),
    [
        ("ls -li", "total 4\n1876079 -rw-r--r-- 1 root root 2 f", "total 4\n1876102 -rw-r--r-- 1 root root 2 f", True),
        ("ls -li", "1876079 -rw-r--r-- 1 root root 2 f", "1876102 -rw-r--r-- 1 root root 3 f", False),
        ("ls -i", "12 f\n13 g", "14 f\n15 g", True),
        ("ls -i", "12 f\n13 g", "14 f\n15 h", False),
        ("stat f", "Device: 0,50 Inode: 1876079 Links: 1", "Device: 0,50 Inode: 1876102 Links: 1", True),
        ("stat f", "Device: 0,50 Inode: 1876079 Links: 1", "Device: 0,50 Inode: 1876102 Links: 2", False),
        ("ls -l; wc -l f", "4 f", "5 f", False),
        ("cat f", "1876079", "1876102", False),
    ],
)
def test_inode_numbers_are_those_of_files_made_again(command: str, recorded: str, again: str, same: bool) -> None:
    look = of(ToolCall("shell", {"command": command}))
    assert agree(ToolResult(recorded), ToolResult(again), look) is same


def test_a_replay_with_another_exit_code_does_not_agree() -> None:
    assert not agree(ToolResult("a"), replace(ToolResult("a"), exit_code=1))
