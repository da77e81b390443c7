"""Law 2: nothing a sibling does is seen: memory, files, processes."""

from __future__ import annotations

from collections.abc import Callable

from contract.laws import COMMANDS, forks, python, seen
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bunshin_gym import Workspace

Start = Callable[..., Workspace]
LOOK = "echo $X $Y $Z; pwd; cat /tmp/f; ls /tmp"


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(deeds=st.lists(st.sampled_from(COMMANDS), min_size=1, max_size=6))
def test_what_one_does_no_other_sees(start: Start, deeds: list[str]) -> None:
    with start() as source:
        source.run("X=0; cd /tmp; echo content > f")
        doer, watcher = forks(source, 2)
        with doer, watcher:
            before = seen(watcher.run(LOOK))
            for command in deeds:
                doer.run(command)
            doer.run("echo changed > /tmp/f; touch /tmp/new; X=changed; cd /")
            assert seen(watcher.run(LOOK)) == before
            assert seen(source.run(LOOK)) == before


def test_files(start: Start) -> None:
    with start() as source:
        source.write_file("/tmp/f", b"source")
        a, b = forks(source, 2)
        with a, b:
            a.write_file("/tmp/f", b"a")
            b.run("rm /tmp/f; echo b > /tmp/only-b")
            assert source.read_file("/tmp/f") == b"source"
            assert a.read_file("/tmp/f") == b"a"
            assert a.run("ls /tmp/only-b").exit_code != 0
            assert source.run("ls /tmp/only-b").exit_code != 0


def test_interpreter_memory(start: Start) -> None:
    with start() as source:
        python(source, "data = [[0] * 1000 for _ in range(100)]")
        a, b = forks(source, 2)
        with a, b:
            python(a, "data[5][5] = 'a'")
            python(source, "data[5][5] = 'source'")
            assert python(b, "data[5][5]") == "0"
            assert python(a, "data[5][5]") == "'a'"
            assert python(source, "data[5][5]") == "'source'"


def test_processes(start: Start) -> None:
    with start() as source:
        pid = source.run("sleep 600 & echo $!").stdout.split()[-1].decode()
        a, b = forks(source, 2)
        with a, b:
            a.run(f"kill {pid}; wait")
            b.run("sleep 700 &")
            assert [p.comm for p in a.processes()].count("sleep") == 0
            assert [p.comm for p in source.processes()].count("sleep") == 1
            assert [p.comm for p in b.processes()].count("sleep") == 2


def test_the_end_of_one_is_not_the_end_of_another(start: Start) -> None:
    with start() as source:
        a, b = forks(source, 2)
        with b:
            a.close()
            assert b.run("echo on").output == "on\n"
            source.close()
            assert b.run("echo on").output == "on\n"


def test_a_shell_that_exits_or_times_out_is_its_own_affair(start: Start) -> None:
    with start() as source:
        a, b = forks(source, 2)
        with a, b:
            a.run("exit 9")
            a.run("sleep 60", timeout=0.3)
            assert b.run("echo on").output == "on\n"
            assert a.run("echo on, too").output == "on, too\n"
