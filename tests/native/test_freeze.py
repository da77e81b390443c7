"""A frozen workspace: nothing in it goes on by itself, and calls work as ever."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from field.looks import execute, python, until

import needs
from bunshin_gym import ShellEnv, Task, Workspace, WorkspaceSpec

pytestmark = pytest.mark.engine("native")

# The threads of all processes but pid 1 and the one that looks: those that do not stand still.
MOVING = """
import glob, os
for path in glob.glob("/proc/[0-9]*/task/*/stat"):
    pid = int(path.split("/")[2])
    try: name, state = open(path).read().rsplit(")", 1)[0], open(path).read().rsplit(")", 1)[1].split()[0]
    except OSError: continue
    if pid not in (1, os.getpid()) and state not in "TtZX": print(name, state)
"""
THREADS = """
import itertools, pathlib, threading, time
def count():
    for n in itertools.count():
        pathlib.Path("/work/n").write_text(str(n))
threading.Thread(target=count, daemon=True).start()
x = 41
"""
STORM = "for i in 1 2 3; do (while :; do (:) & sh -c : ; wait; done) & done; (exec sleep 1000) & x=5; cd /tmp"


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    needs.require("engine native")
    with Workspace(WorkspaceSpec(call_timeout=60)) as made:
        yield made


def moving(workspace: Workspace) -> str:
    return execute(workspace, "python3", "-c", MOVING).output


def test_nothing_goes_on_and_calls_work(workspace: Workspace) -> None:
    workspace.run(STORM)
    python(workspace, THREADS)
    assert until(lambda: execute(workspace, "test", "-s", "/work/n").ok)
    assert moving(workspace)
    workspace.freeze()
    workspace.freeze()
    assert moving(workspace) == ""
    written = workspace.read_file("/work/n")
    child, *_ = workspace.fork(1)
    assert isinstance(child, Workspace)
    with child:
        for one in (workspace, child):
            assert one.run("echo $x $PWD; sleep 0.01 & wait $!; echo $?").output == "5 /tmp\n0\n"
            one.write_file("/work/new", b"new")
            assert one.read_file("/work/new") == b"new"
            assert one.read_file("/work/n") == written
            assert python(one, "x + 1").output == "42\n"  # its threads run for as long as this takes
            assert until(lambda one=one: moving(one) == "")
    assert workspace.run("exit 3").exit_code == 3
    assert workspace.run("pwd").output == "/tmp\n"


def test_a_stopped_process_stays_and_is_sealed(workspace: Workspace) -> None:
    workspace.run("sleep 1000 & until [ $(cat /proc/$!/comm) = sleep ]; do :; done; kill -STOP $!")
    workspace.freeze()
    with workspace.snapshot() as snapshot:
        (child,) = snapshot.fork(1)
        assert isinstance(child, Workspace)
        with child:
            assert moving(child) == ""
            assert sum(process.comm == "sleep" for process in child.processes()) == 1


# A job in the background that finishes the task as soon as it is let: after the end of the episode.
LATE = "(while [ ! -e /work/go ]; do sleep 0.01; done; touch /work/done) > /dev/null 2>&1 &"


def lets_it(workspace: Workspace) -> float:
    workspace.write_file("/work/go", b"")
    if moving(workspace):
        return float(until(lambda: execute(workspace, "test", "-e", "/work/done").ok))
    return float(execute(workspace, "test", "-e", "/work/done").ok)


@pytest.mark.parametrize(
    ("actions", "live", "reward"),
    [((LATE, "true"), False, 0.0), ((LATE, "true"), True, 1.0), ((LATE, "submit"), False, 1.0)],
    ids=["truncated", "truncated-live", "submitted"],
)
def test_what_is_late_does_not_count_after_the_step_limit(actions: tuple[str, ...], live: bool, reward: float) -> None:
    needs.require("engine native")
    env = ShellEnv(task=Task("late", "Be quick.", verifier=lets_it, step_limit=2, live_verifier=live))
    try:
        env.reset()
        *_, last = [env.step(action) for action in actions]
        assert last[1] == reward
        assert last[3] == (actions[-1] != "submit")
        assert ("freeze" in env.stats.seconds) == (reward == 0.0)
    finally:
        env.close()
