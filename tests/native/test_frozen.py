"""A clock that stands and randomness from a seed: which programs take them, what draws follow from, what forks do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from contract.laws import python
from native.frozen_programs import AT, PROGRAMS, Program

import needs
from bunshin_gym import ToolCall, Workspace, WorkspaceError, WorkspaceSpec
from bunshin_gym.executor import Executor
from native import frozen_programs

pytestmark = pytest.mark.engine("native")

PAGE = Path(__file__).parents[2] / "docs" / "frozen.md"
DRAW = "head -c 8 /dev/urandom | od -An -x"


def start(**fields: object) -> Workspace:
    return Workspace(WorkspaceSpec(**({"frozen_time": AT, "seed": 7, "call_timeout": 120.0} | fields)))  # type: ignore[arg-type]


def said(workspace: Workspace, command: str) -> str:
    result = workspace.run(command)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def three() -> Iterator[tuple[Workspace, Workspace, Workspace]]:
    """Two of one seed, and one of another."""
    needs.require("engine native")
    with start() as one, start() as two, start(seed=8) as other:
        for workspace in one, two, other:  # their shells are not what a test leaves behind
            workspace.run("true")
        two.run("/bin/true; /bin/true")  # process ids are no part of what is given
        yield one, two, other


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(p, id=p.name, marks=[pytest.mark.needs(*p.needs), *[pytest.mark.thorough] * p.thorough])
        for p in PROGRAMS
    ],
)
def test_programs(three: tuple[Workspace, Workspace, Workspace], program: Program) -> None:
    for workspace in three if program.setup else ():
        said(workspace, f"({program.setup})")
    if program.clock is not None:
        command, takes = program.clock
        assert (int(said(three[0], command)) == AT) == takes
    if program.random is not None:
        command, takes = program.random
        one, two, other = (said(workspace, command) for workspace in three)
        assert (one == two) == takes
        assert one != other


def test_the_page_has_the_table() -> None:
    assert frozen_programs.render() in PAGE.read_text()


def test_either_without_the_other() -> None:
    with start(seed=None) as still, start(frozen_time=None) as seeded:
        assert said(still, "date +%s") == f"{AT}\n"
        assert said(still, DRAW) != said(still, DRAW)
        assert said(still, "mktemp -u") != said(still, "mktemp -u")
        assert int(said(seeded, "date +%s")) < AT
        assert said(seeded, DRAW) == said(seeded, DRAW)


def test_the_instant_is_exact() -> None:
    with start(frozen_time=1_500_000_000.25) as workspace:
        assert said(workspace, "date +%s.%N; echo $EPOCHREALTIME") == "1500000000.250000000\n1500000000.250000\n"
        assert python(workspace, "import time; time.time_ns()") == "1500000000250000000"


def test_a_call_draws_what_follows_from_its_text_and_the_place_in_it(three: tuple[Workspace, ...]) -> None:
    workspace = three[0]
    both = said(workspace, f"{DRAW}; {DRAW}; (echo $SRANDOM); (echo $SRANDOM)").splitlines()
    assert len(set(both)) == 4
    assert said(workspace, f"{DRAW} ") != said(workspace, f"{DRAW}  ")
    assert said(workspace, "echo $RANDOM $RANDOM") == said(workspace, "echo $RANDOM $RANDOM")
    said(workspace, "RANDOM=1; echo $RANDOM")
    assert said(workspace, "echo $RANDOM $RANDOM") == said(three[1], "echo $RANDOM $RANDOM")


def test_children_are_told_apart_by_their_births(three: tuple[Workspace, ...]) -> None:
    # Both sides of a pipe draw at the same time, whoever is first.
    command = (
        "for i in {1..20}; do { sleep 0.0$((i % 2)); echo $SRANDOM $RANDOM; } | { echo $SRANDOM $RANDOM; cat; }; done"
    )
    drawn = said(three[0], command)
    assert len(set(drawn.split())) > 70  # of 80; RANDOM is small
    assert said(three[1], command) == drawn
    forks = "import os\nfor _ in range(9):\n    if not os.fork():\n        print(os.urandom(8)); os._exit(0)\n"
    code = f"python3 -c '{forks}for _ in range(9): os.wait()' | sort | md5sum"
    assert said(three[0], code) == said(three[1], code)


def test_names_that_are_taken_are_not_given_again(three: tuple[Workspace, ...]) -> None:
    made = {said(three[0], command) for command in ["mktemp", "mktemp", "mktemp -d", "mktemp"]}
    assert len(made) == 4


def test_forks_and_rollbacks_go_on_from_where_it_was_sealed() -> None:
    with start() as source:
        python(source, "import os, random, time; os.urandom(100), random.random()")
        said(source, "exec 7</dev/urandom; head -c 5 <&7 >/dev/null")

        def go_on(workspace: Workspace) -> list[str]:
            drawn = [python(workspace, "os.urandom(8), random.random(), time.time()") for _ in range(2)]
            assert drawn[0] != drawn[1]
            return [*drawn, said(workspace, "head -c 600000 <&7 | md5sum; echo $RANDOM $(echo $RANDOM); date +%s")]

        with source.snapshot() as sealed:
            (fork,) = sealed.fork(1)
            assert not isinstance(fork, WorkspaceError)
            with fork:
                expected = go_on(source)
                assert go_on(fork) == expected
            source.restore(sealed)
            assert go_on(source) == expected


def test_the_device_has_no_end(three: tuple[Workspace, ...]) -> None:
    workspace = three[0]
    assert said(workspace, "dd if=/dev/urandom bs=1M count=3 2>/dev/null | wc -c") == f"{3 << 20}\n"
    assert said(workspace, "head -c 700000 /dev/urandom > /tmp/r; gzip -c /tmp/r | wc -c") > "700000"
    assert said(workspace, "cat /dev/urandom | head -c 700000 | wc -c") == "700000\n"
    assert (
        said(workspace, "cat /dev/random >/tmp/r & sleep 0.01; kill $!; wait; test -c /dev/random && echo kept")
        == "kept\n"
    )


# Two histories: what they have in common is answered from the tree, also where they came to it in another way.
WAYS = [
    ["date +%s", "echo $RANDOM $(echo $RANDOM)", "mktemp", "mktemp", DRAW, "echo x > x", DRAW, "cat x", "echo $RANDOM"],
    ["echo x > x", DRAW, "mktemp", "date +%s", "echo $RANDOM", "mktemp", "ls /tmp", "./look", "echo $RANDOM"],
    ["mktemp", "python3 -c 'import uuid; print(uuid.uuid4())'", "echo x > x", "./look", "mktemp", DRAW, "cat x"],
]
LOOK = b"#!/bin/bash\necho $RANDOM; date; python3 -c 'import random; print(random.random())'\n"


def told(*, cache: bool) -> tuple[list[list[str]], int]:
    """What each way is told, two rollouts each, and how many answers came from the tree."""

    def prepare() -> Workspace:
        workspace = start(separate_stderr=False)
        workspace.write_file("/work/look", LOOK, 0o755)
        return workspace

    executor = Executor(cache=cache, group=2, audit=0.0)
    try:
        outputs = []
        for way in [*WAYS, *WAYS]:
            rollout = executor.open("root", prepare)
            outputs.append(
                [executor.run(rollout, ToolCall("shell", {"command": command}), 60.0).output for command in way]
            )
            executor.close_rollout(rollout)
        return outputs, executor.stats.hits
    finally:
        executor.close()


def test_the_cache_changes_nothing() -> None:
    with_cache, hits = told(cache=True)
    without, none = told(cache=False)
    assert with_cache == without
    assert none == 0
    assert hits > sum(map(len, WAYS))  # the second rollout of each way, and where ways meet


WAITS = r"""
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <time.h>
static struct timespec soon(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if ((t.tv_nsec += 50000000) > 999999999) t.tv_nsec -= 1000000000, t.tv_sec++;
    return t;
}
int main(void) {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    sem_t sem;
    struct timespec at = soon(), begun, ended;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    sem_init(&sem, 0, 0);
    pthread_mutex_lock(&mutex);
    int result = pthread_cond_timedwait(&cond, &mutex, &at) == ETIMEDOUT;
    result += pthread_mutex_timedlock(&mutex, &at) == ETIMEDOUT;
    result += sem_timedwait(&sem, &at) < 0 && errno == ETIMEDOUT;
    result += clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &at, 0) == 0;
    clock_gettime(CLOCK_MONOTONIC, &ended);
    printf("%d %d\n", result, ended.tv_sec - begun.tv_sec + (ended.tv_nsec - begun.tv_nsec) / 1e9 > 0.15);
}
"""


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("at", [AT, 1])
def test_waiting_until_a_point_of_the_clock_takes_its_time(at: int) -> None:
    with start(frozen_time=at) as workspace:
        workspace.write_file("/tmp/w.c", WAITS.encode())
        assert said(workspace, "cd /tmp && gcc -pthread -o w w.c && ./w") == "4 1\n"


FORKS = r"""
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
static void *idle(void *unused) { return unused; }
int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, idle, NULL);
    for (int i = 0; i < 3; i++)
        if (fork() == 0)
            _exit(0);
    while (wait(NULL) > 0)
        ;
    return pthread_join(thread, NULL);
}
"""


@pytest.mark.thorough
@pytest.mark.needs("gcc")
def test_thread_sanitizer_reports_as_ever() -> None:
    with start() as workspace:
        workspace.write_file("/tmp/t.c", FORKS.encode())
        shown = said(workspace, "cd /tmp && gcc -fsanitize=thread -pthread -o t t.c && ./t")
    assert "CHECK failed" not in shown
    assert "thread leak" in shown  # which it says of the children


def test_what_the_user_sets_stays() -> None:
    env = {"LD_PRELOAD": "/nowhere.so", "ASAN_OPTIONS": "detect_leaks=0", "PYTHONHASHSEED": "5"}
    with start(env=env) as workspace:
        shown = said(workspace, "echo $LD_PRELOAD $ASAN_OPTIONS $PYTHONHASHSEED 2>/dev/null")
    assert shown == "/run/bunshin/frozen.so:/nowhere.so verify_asan_link_order=0:detect_leaks=0 5\n"
