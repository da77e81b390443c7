"""Law 1: a call in a fork gives what it gives in the original."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from contract.laws import COMMANDS, forks, one_fork, python, seen
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bunshin_gym import Workspace

Start = Callable[..., Workspace]
commands = st.lists(st.sampled_from(COMMANDS), max_size=5)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(before=commands, after=commands)
def test_any_calls_give_the_same_in_source_and_fork(start: Start, before: list[str], after: list[str]) -> None:
    with start() as source:
        for command in before:
            source.run(command)
        with one_fork(source) as fork:
            for command in after:
                assert seen(source.run(command)) == seen(fork.run(command)), command


def test_the_source_goes_on_as_if_nothing_had_happened(start: Start) -> None:
    with start() as forked, start() as left_alone:
        for command in COMMANDS:
            with forked.snapshot():
                pass
            assert seen(forked.run(command)) == seen(left_alone.run(command)), command


def test_shell_python_and_files_go_along(start: Start) -> None:
    with start() as source:
        source.run("mkdir -p /tmp/x; cd /tmp/x; export A=1; B=2")
        python(source, "data = {'list': [1, 2, 3]}")
        source.write_file("/tmp/x/f", bytes(range(256)))
        with one_fork(source) as fork:
            assert fork.run("echo $A $B; pwd").output == "1 2\n/tmp/x\n"
            assert python(fork, "data") == "{'list': [1, 2, 3]}"
            assert fork.read_file("/tmp/x/f") == bytes(range(256))


def test_background_processes_go_along_under_their_pids(start: Start) -> None:
    with start() as source:
        pid = source.run("sleep 600 & echo $!").stdout.split()[-1].decode()
        with one_fork(source) as fork:
            assert fork.run(f"kill -0 {pid} && echo there").output == "there\n"
            assert int(pid) in {process.pid for process in fork.processes()}
            assert sorted(p.comm for p in source.processes()) == sorted(p.comm for p in fork.processes())


def test_a_fork_of_a_fork_of_a_fork(start: Start) -> None:
    generation = start()
    generation.run("N=0")
    for n in range(1, 8):
        with generation:
            child = one_fork(generation)
        generation = child
        assert generation.run("N=$((N+1)); echo $N; echo $N >> /tmp/log").output == f"{n}\n"
    with generation:
        assert generation.run("cat /tmp/log").output == "".join(f"{n}\n" for n in range(1, 8))


def test_a_snapshot_outlives_its_workspace_and_forks_outlive_it(start: Start) -> None:
    with start() as source:
        source.run("X=kept")
        snapshot = source.snapshot()
    with snapshot:
        children = snapshot.fork(3)
    for child in children:
        assert isinstance(child, Workspace)
        with child:
            assert child.run("echo $X").output == "kept\n"


def test_a_snapshot_is_of_its_moment(start: Start) -> None:
    with start() as source:
        source.run("X=then; echo then > /tmp/f")
        with source.snapshot() as snapshot:
            source.run("X=now; echo now > /tmp/f")
            (child,) = snapshot.fork(1)
            assert isinstance(child, Workspace)
            with child:
                assert child.run("echo $X; cat /tmp/f").output == "then\nthen\n"
        assert source.run("echo $X; cat /tmp/f").output == "now\nnow\n"


def test_restore_rolls_back_in_place(start: Start) -> None:
    with start() as workspace:
        workspace.run("X=then; echo then > /tmp/f; cd /tmp")
        python(workspace, "x = 1")
        with workspace.snapshot() as snapshot:
            for _ in range(2):
                workspace.run("X=now; rm /tmp/f; touch /tmp/g; cd /; sleep 600 &")
                python(workspace, "x = 2")
                workspace.restore(snapshot)
                assert workspace.run("echo $X; cat f; test -e g || echo gone; pwd").output == "then\nthen\ngone\n/tmp\n"
                assert python(workspace, "x") == "1"
                assert "sleep" not in {process.comm for process in workspace.processes()}


def test_rounds_of_writing_and_restoring_lose_nothing(start: Start) -> None:
    with start() as workspace:
        for n in range(5):
            workspace.run(f"echo {n} >> /tmp/log")
            with workspace.snapshot() as snapshot:
                workspace.run("rm /tmp/log")
                workspace.restore(snapshot)
        assert workspace.run("cat /tmp/log").output == "0\n1\n2\n3\n4\n"


@pytest.mark.parametrize("n", [0, 1, 8])
def test_many_children_of_one_snapshot(start: Start, n: int) -> None:
    with start() as source:
        source.run("X=shared")
        children = forks(source, n)
        assert len(children) == n
        for i, child in enumerate(children):
            with child:
                assert child.run(f"echo $X {i}").output == f"shared {i}\n"
