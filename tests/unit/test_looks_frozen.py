"""Which calls are a function of the state where clock and randomness are frozen; docs/frozen.md says why."""

from __future__ import annotations

import time

import pytest

from bunshin_gym import ToolCall, ToolResult, WorkspaceSpec
from bunshin_gym.frozen import NOTHING_GIVEN, Given
from bunshin_gym.looks import cacheable, seen

CLOCK, SEED = Given(2_000_000_000), Given(seeded=True)
BOTH = Given(2_000_000_000, True)


def shell(command: str) -> ToolCall:
    return ToolCall("shell", {"command": command})


def python(code: str) -> ToolCall:
    return ToolCall("python", {"code": code})


def run(*argv: str) -> ToolCall:
    return ToolCall("exec", {"argv": list(argv)})


OF_THE_CLOCK = [
    shell("date; echo $EPOCHSECONDS $EPOCHREALTIME"),
    shell('for i in 1 2; do bash -c "date +%s"; done | sort'),
    shell("git commit -qm x && git log --since=yesterday"),
    shell("find . -mtime -60 -exec ls {} +"),
    shell("awk 'BEGIN { srand(); print rand(), systime() }'"),
    shell("perl -e 'print time, scalar localtime'; ruby -e 'puts Time.now'; node -e 'console.log(Date.now())'"),
    shell("timeout 5 nice python3 -c 'import time, datetime; print(time.time(), datetime.datetime.now())'"),
    python("import time; time.time()"),
    python("from datetime import datetime; datetime.now()"),
    run("date", "+%s"),
    ToolCall("exec", {"command": "date"}),
]
OF_THE_SEED = [
    shell("echo $RANDOM $(echo $SRANDOM); bash -c 'echo $RANDOM'"),
    shell("mktemp -d; shuf -n 1 words; sort -R words; uuidgen"),
    shell("head -c 8 /dev/urandom | od -x; tr -dc a-z </dev/random | head -c 8; cat /proc/sys/kernel/random/uuid"),
    shell("openssl rand -hex 8; openssl genpkey -algorithm ed25519"),
    shell("perl -e 'print rand'; ruby -rsecurerandom -e 'puts SecureRandom.hex'; node -p 'Math.random()'"),
    shell("python3 - <<'EOF'\nimport random, uuid\nprint(random.random(), uuid.uuid4())\nEOF"),
    python("import os, random, secrets, tempfile; os.urandom(4), random.random(), tempfile.mkdtemp()"),
    run("python3", "-c", "import numpy; print(numpy.random.rand())"),
]
OF_NEITHER = [
    shell("echo $SECONDS"),
    shell("time true"),
    shell("uptime"),
    shell("git gc"),
    shell("env -i date"),
    shell("env - bash -c 'echo $RANDOM'"),
    shell("env -u LD_PRELOAD date"),
    shell("LD_PRELOAD= date"),
    shell("unset LD_PRELOAD"),
    shell("exec -c date"),
    shell("sudo date"),
    shell("su -c date"),
    shell("busybox date"),
    shell("chroot /x date"),
    shell("faketime yesterday date"),
    shell("zsh -c 'echo $RANDOM'"),
    shell("zsh <<'EOF'\necho $RANDOM\nEOF"),
    shell("./tool /dev/urandom"),
    shell("uuidgen -t"),
    shell("ssh-keygen -f k; gpg --gen-key"),
    shell("ruby -e 'puts rand'"),
    shell("node -p 'Date.now() + performance.now()'"),
    shell("php -r 'echo time();'"),
    shell("python3 -c 'import time; print(time.perf_counter())'"),
    shell("python3 -c 'import uuid; print(uuid.uuid1())'"),
    shell("date; echo $$; cat /proc/uptime"),
    shell("date; curl example.org"),
    shell("date &"),
    python("from time import monotonic as m; m()"),
    python("id(object())"),
    ToolCall("exec", {"argv": ["date"], "env": {"LD_PRELOAD": ""}}),
    ToolCall("exec", {"command": "echo $RANDOM", "shell": ["zsh", "-c"]}),
    ToolCall("read_file", {"path": "/dev/urandom"}),
]


@pytest.mark.parametrize("call", OF_THE_CLOCK, ids=str)
def test_of_the_clock(call: ToolCall) -> None:
    assert [cacheable(call, given) for given in (NOTHING_GIVEN, SEED, CLOCK, BOTH)] == [False, False, True, True]


@pytest.mark.parametrize("call", OF_THE_SEED, ids=str)
def test_of_the_seed(call: ToolCall) -> None:
    assert [cacheable(call, given) for given in (NOTHING_GIVEN, CLOCK, SEED, BOTH)] == [False, False, True, True]


def test_certificates_are_of_both() -> None:
    call = shell("openssl req -new -x509 -newkey ed25519 -nodes -keyout k -out c")
    assert [cacheable(call, given) for given in (NOTHING_GIVEN, CLOCK, SEED, BOTH)] == [False, False, False, True]


@pytest.mark.parametrize("call", OF_NEITHER, ids=str)
def test_what_is_given_to_no_one(call: ToolCall) -> None:
    assert not cacheable(call, BOTH)


def test_what_a_result_shows() -> None:
    now = time.time()
    shows = ToolResult(f"at {int(now)}, /tmp/tmp.Ab3dEfGh1Z", duration=0.5)
    call = shell("./report")
    assert seen(call, shows) == "randomness"
    assert seen(call, shows, SEED) == "clock"  # a time of now
    assert seen(call, shows, BOTH) == "clock"  # of a program that does not take the frozen one
    assert seen(call, shows, Given(int(now), True)) == ""
    assert seen(call, ToolResult("2033-05-18 03:33:20", duration=0.5), BOTH) == ""


def test_what_a_spec_gives() -> None:
    assert not Given.by(WorkspaceSpec())
    assert Given.by(WorkspaceSpec(frozen_time=1.5)) == Given(1)
    assert "clock" in Given.by(WorkspaceSpec(frozen_time=0))
    assert "randomness" in Given.by(WorkspaceSpec(seed=0))
    assert not Given.by(WorkspaceSpec(engine="dummy", frozen_time=0, seed=0))  # which has neither
