from __future__ import annotations

from dataclasses import replace

import pytest

from bunshin_gym import ToolCall, ToolResult
from bunshin_gym.looks import agree, cacheable

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
]


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


@pytest.mark.parametrize(
    ("recorded", "replayed", "same"),
    [
        ("a\n", "a\n", True),
        ("a\n", "b\n", False),
        ("-rw-r--r-- 1 root root 3 Nov 29 21:31 a", "-rw-r--r-- 1 root root 3 Nov 29 21:45 a", True),
        ("-rw-r--r-- 1 root root 3 Nov 29 21:31 a", "-rw-r--r-- 1 root root 4 Nov 29 21:31 a", False),
        ("3 passed in 0.02s", "3 passed in 0.14s", True),
        ("3 passed in 0.02s", "2 passed in 0.02s", False),
        ("2026-11-29 10:00:00.123 INFO", "2026-11-30 11:12:13.456 INFO", True),
        ("<object at 0x7f01aabbccdd>", "<object at 0x7f01aabb0000>", True),
    ],
)
def test_a_replay_agrees_but_for_times_and_addresses(recorded: str, replayed: str, same: bool) -> None:
    assert agree(ToolResult(recorded), ToolResult(replayed, duration=9.0)) is same


def test_a_replay_with_another_exit_code_does_not_agree() -> None:
    assert not agree(ToolResult("a"), replace(ToolResult("a"), exit_code=1))
