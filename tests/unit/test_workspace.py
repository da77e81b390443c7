"""What Workspace and Snapshot themselves do: arguments, order, ownership. Engines are tried in tests/contract."""

from __future__ import annotations

import errno
import io
import os
import threading
import time
import warnings

import pytest

from bunshin_gym import (
    EngineUnavailable,
    ExitReason,
    ForkError,
    InvalidToolCall,
    ToolCall,
    Workspace,
    WorkspaceBusy,
    WorkspaceError,
    WorkspaceLost,
    WorkspaceSpec,
    engines,
    features,
)
from bunshin_gym.engines.dummy import Faults
from bunshin_gym.workspace import parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [("1G", 1 << 30), ("512M", 512 << 20), ("64 KiB", 64 << 10), ("1.5k", 1536), (4096, 4096), ("7", 7), (None, None)],
)
def test_sizes(text: str | int | None, size: int | None) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "G", "-1", "1X", "nan", 0, -5, True and "1e400G"])
def test_what_is_no_size(text: str | int) -> None:
    with pytest.raises(ValueError):
        parse_size(text)


@pytest.mark.parametrize(
    "wrong",
    [
        {"network": "all"},
        {"cwd": "work"},
        {"pids_limit": 0},
        {"call_timeout": 0},
        {"call_timeout": float("inf")},
        {"memory_limit": "lots"},
        {"output_limit": 0},
        {"capabilities": "some"},
    ],
)
def test_a_spec_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        WorkspaceSpec(**wrong)  # type: ignore[arg-type]


def test_unknown_engines_say_what_there_is() -> None:
    with pytest.raises(EngineUnavailable, match="dummy"):
        Workspace(engine="nope")
    assert set(engines.names()) == {"native", "dummy"}
    assert features()["engines"]["dummy"] == ""


def test_timeouts_must_be_positive(workspace: Workspace) -> None:
    for timeout in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError):
            workspace.run("true", timeout=timeout)


def test_wrong_calls_reach_no_engine(workspace: Workspace) -> None:
    with pytest.raises(InvalidToolCall):
        workspace.call(ToolCall("shell", {}))


def test_a_timeout_is_a_result_and_the_session_goes_on(workspace: Workspace) -> None:
    workspace.run("X=1; cd /tmp")
    result = workspace.run("echo partial; sleep 60", timeout=0.2)
    assert (result.exit_code, result.exit_reason, result.output) == (124, ExitReason.TIMEOUT, "partial\n")
    assert workspace.run("echo $X; pwd").output == "1\n/tmp\n"


def test_a_second_call_is_told_what_runs_and_the_ways_on(workspace: Workspace) -> None:
    caller = threading.Thread(target=workspace.run, args=("sleep 60",))
    caller.start()
    try:
        while workspace._running is None:
            time.sleep(0.001)
        for step in (lambda: workspace.run("pwd"), workspace.snapshot, lambda: workspace.read_file("/x")):
            with pytest.raises(WorkspaceBusy, match=r"sleep 60.*interrupt"):
                step()
        assert workspace.processes()
        assert workspace.memory().rss > 0
    finally:
        while caller.is_alive():
            workspace.interrupt()
            caller.join(0.01)
    assert workspace.run("echo free").output == "free\n"


def test_files_are_exact_and_errors_have_an_errno(workspace: Workspace) -> None:
    workspace.write_file("/w/deep/a.bin", bytes(range(256)) * 1000)
    assert workspace.read_file("/w/deep/a.bin") == bytes(range(256)) * 1000
    workspace.write_file("rel", io.BytesIO(b"stream"))
    assert workspace.read_file("/work/rel") == b"stream"
    with pytest.raises(WorkspaceError) as caught:
        workspace.read_file("/nope")
    assert caught.value.errno == errno.ENOENT
    with pytest.raises(WorkspaceError) as caught:
        workspace.read_file("/tmp")
    assert caught.value.errno == errno.EISDIR
    for path in ("", "a\0b"):
        with pytest.raises(ValueError):
            workspace.read_file(path)


def test_streams_are_apart_or_one(workspace: Workspace) -> None:
    apart = workspace.run("echo a; echo b >&2; echo c")
    assert (apart.output, apart.stdout, apart.stderr) == ("a\nb\nc\n", b"a\nc\n", b"b\n")
    with Workspace(engine="dummy", separate_stderr=False) as one:
        joined = one.run("echo a; echo b >&2; echo c")
        assert (joined.output, joined.stdout, joined.stderr) == ("a\nb\nc\n", b"a\nb\nc\n", b"")


def test_output_is_bounded_and_says_so() -> None:
    with Workspace(engine="dummy", output_limit=100) as workspace:
        result = workspace.run("seq 1000")
        assert result.truncated
        assert result.stdout_total == 3893
        assert result.stdout.startswith(b"1\n2\n")
        assert result.stdout.endswith(b"999\n1000\n")
        assert len(result.stdout) < 200


def test_a_lost_workspace_gives_results_and_refuses_forks(workspace: Workspace, faults: Faults) -> None:
    snapshot = workspace.snapshot()
    faults.lose_at_call = 2
    assert workspace.run("echo 1").ok
    for _ in range(2):
        result = workspace.run("echo 2")
        assert (result.exit_code, result.exit_reason) == (None, ExitReason.WORKSPACE_LOST)
    assert not workspace.alive
    assert "lost" in repr(workspace)
    for step in (workspace.snapshot, workspace.memory, workspace.processes):
        with pytest.raises(WorkspaceLost):
            step()
    (child,) = snapshot.fork(1)
    assert isinstance(child, Workspace)
    assert child.run("echo on").output == "on\n"
    child.close()
    snapshot.close()


def test_a_failed_child_is_an_error_in_its_place(workspace: Workspace, faults: Faults) -> None:
    faults.fail_children = {1}
    children = workspace.fork(3)
    assert [isinstance(child, ForkError) for child in children] == [False, True, False]
    for child in children:
        if isinstance(child, Workspace):
            assert child.run("echo on").output == "on\n"
            child.close()


def test_a_failed_snapshot_or_start_leaves_nothing(workspace: Workspace, faults: Faults) -> None:
    faults.fail_snapshots = faults.fail_creates = 1
    with pytest.raises(ForkError):
        workspace.snapshot()
    with pytest.raises(WorkspaceError):
        Workspace(engine="dummy")
    assert workspace.run("echo on").output == "on\n"


def test_what_was_not_closed_is_closed_and_warned_about(workspace: Workspace) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        child = workspace.fork(1)[0]
        assert isinstance(child, Workspace)
        inner = child._inner
        del child
        assert not inner.alive
        del inner
        snapshot = workspace.snapshot()
        del snapshot
    assert [w.category for w in caught] == [ResourceWarning] * 2


def test_handles_in_a_forked_copy_of_the_program_are_dead(workspace: Workspace) -> None:
    snapshot = workspace.snapshot()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            for step in (lambda: workspace.run("pwd"), lambda: snapshot.fork(1)):
                try:
                    step()
                except WorkspaceError as error:
                    assert "belongs to process" in str(error)
            assert not workspace.alive
            workspace.close()
            snapshot.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert workspace.run("echo on").output == "on\n"
    snapshot.close()
