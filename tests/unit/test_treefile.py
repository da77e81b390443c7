"""Call trees on disk: what was learned in one process answers in the next, where it still holds, and only there."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.rollouts import SPEC, run

from bunshin_gym import (
    BunshinVectorEnv,
    ExitReason,
    RolloutPool,
    ShellEnv,
    Task,
    ToolCall,
    ToolResult,
    TreeFileError,
    Workspace,
)
from bunshin_gym.executor import Executor
from bunshin_gym.graft import cut
from bunshin_gym.node import Edge
from bunshin_gym.rollout import Rollout
from bunshin_gym.stamp import Stamp, fingerprint, stamp_of
from bunshin_gym.state import combine
from bunshin_gym.subtree import KeptNode, KeptState, KeptStep, Subtree
from bunshin_gym.treefile import SavedRoot, TreeFile


def holds_done(workspace: Workspace) -> float:
    return float(workspace.run("cat done").output == "done\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all examples of a property."""
    return tmp_path_factory.mktemp("trees")


TASK = Task("task", "Do it.", setup=("echo prepared > ready",), files={"given": b"1\n"}, verifier=holds_done)


def opened(executor: Executor, task: Task = TASK) -> Rollout:
    return executor.open(task.name, lambda: task.prepare(SPEC), task.stamp)


def played(
    saved: Path | None, *scripts: str, task: Task = TASK, save: Path | None = None
) -> tuple[list[Any], Executor]:
    """What rollouts of these scripts (commands, a line each) observe, one after another, in a process of its own."""
    executor = Executor(group=2, audit=0, saved=saved)
    seen: list[Any] = []
    try:
        for script in scripts:
            rollout = opened(executor, task)
            seen += [(r.output, r.exit_code) for r in (run(executor, rollout, line) for line in script.splitlines())]
            seen.append(executor.verify(rollout, task.verifier) if task.verifier else None)
            rollout.close()
        if save is not None:
            executor.save(save)
    finally:
        executor.close()
    return seen, executor


SCRIPT = "cat given\necho done > done\ncat done\nmkdir d\ncd d\nls"


def test_the_next_process_runs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.tree"
    first, _ = played(None, SCRIPT, save=path)
    second, executor = played(path, SCRIPT)
    assert second == first
    assert (executor.stats.hits, executor.stats.misses, executor.stats.verdicts_shared) == (6, 0, 1)
    assert (executor.stats.forks, executor.stats.recalled, executor.stats.stale) == (0, 6, 0)


def test_what_is_not_known_runs_after_a_replay_that_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "a.tree"
    played(None, SCRIPT, save=path)
    seen, executor = played(path, SCRIPT + "\npwd\ncat ../done")
    assert [seen[-3], seen[-2]] == [("/work/d\n", 0), ("done\n", 0)]
    assert (executor.stats.hits, executor.stats.misses, executor.stats.replay_mismatches) == (6, 2, 0)
    assert executor.stats.replays == 3  # those that changed something


def test_what_another_process_adds_is_saved_with_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "a.tree"
    played(None, SCRIPT, save=path)
    other = dataclasses.replace(TASK, name="other")
    played(path, "echo x > x", save=path)
    played(path, "ls", task=other, save=path)
    assert list(TreeFile.read(path).roots) == ["task", "other"]
    _, executor = played(path, SCRIPT, "echo x > x")
    assert executor.stats.misses == 0


@pytest.mark.parametrize(
    ("task", "spec"),
    [
        (dataclasses.replace(TASK, setup=("echo prepared > ready", "true")), {}),
        (dataclasses.replace(TASK, files={"given": b"2\n"}), {}),
        (dataclasses.replace(TASK, version="2"), {}),
        (dataclasses.replace(TASK, spec={"env": {"A": "1"}}), {}),
        (TASK, {"hostname": "elsewhere"}),
    ],
)
def test_another_task_is_stale(tmp_path: Path, task: Task, spec: dict[str, Any]) -> None:
    path = tmp_path / "a.tree"
    played(None, SCRIPT, save=path)
    base = dataclasses.replace(SPEC, **spec)
    executor = Executor(saved=path, audit=0)
    rollout = executor.open(task.name, lambda: task.prepare(base), task.stamp)
    run(executor, rollout, "cat given")
    assert (executor.stats.stale, executor.stats.recalled, executor.stats.hits) == (6, 0, 0)
    rollout.close()
    executor.close()


def test_a_workspace_in_another_state_is_stale(tmp_path: Path) -> None:
    """A set-up that does not give the same each time: nothing in the stamp tells, but the digest does."""
    path = tmp_path / "a.tree"
    played(None, SCRIPT, save=path)
    executor = Executor(saved=path, audit=0)

    def prepare() -> Workspace:
        workspace = TASK.prepare(SPEC)
        workspace.write_file("more", b"")
        return workspace

    rollout = executor.open("task", prepare, TASK.stamp)
    assert "more" in run(executor, rollout, "ls").output
    assert (executor.stats.stale, executor.stats.recalled) == (6, 0)
    rollout.close()
    executor.close()


def test_the_verdicts_of_another_verifier_are_not_used(tmp_path: Path) -> None:
    path = tmp_path / "a.tree"
    played(None, SCRIPT, save=path)
    half = dataclasses.replace(TASK, verifier=lambda workspace: 0.5)
    seen, executor = played(path, SCRIPT, task=half)
    assert (seen[-1], executor.stats.hits, executor.stats.verdicts_shared) == (0.5, 6, 0)


def test_a_call_that_can_notice_times_is_made_again_and_what_follows_it_is_known(tmp_path: Path) -> None:
    path = tmp_path / "a.tree"
    script = "echo a > a\nmake -n > made || true\ncat made\nls"
    first, _ = played(None, script, save=path)
    second, executor = played(path, script, save=path)
    assert second == first
    assert (executor.stats.hits, executor.stats.misses) == (3, 1)
    third, executor = played(path, script)
    assert (third, executor.stats.misses) == (first, 1)


def test_behind_a_call_that_looks_outside_the_state_is_known(tmp_path: Path) -> None:
    path = tmp_path / "a.tree"
    script = "uptime; echo a > a\ncat a\nls"
    first, _ = played(None, script, save=path)
    assert not any(step.result.output for step in TreeFile.read(path).roots["task"].unpack().steps if step.aside)
    second, executor = played(path, script)
    assert (second, executor.stats.hits, executor.stats.misses) == (first, 2, 1)


def test_calls_that_are_not_trusted_stay_so(tmp_path: Path) -> None:
    path = tmp_path / "a.tree"
    executor = Executor(audit=0)
    rollout = opened(executor)
    run(executor, rollout, "cat given")
    executor._discard(executor.tree.forget(rollout.trail[0]))
    run(executor, rollout, "ls")
    executor.save(path)
    rollout.close()
    executor.close()
    _, executor = played(path, "ls\ncat given")
    assert (executor.stats.hits, executor.stats.misses) == (1, 1)


def test_it_is_saved_while_rollouts_go_on_and_not_once_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "a.tree"
    executor = Executor(audit=0, group=4)
    done = threading.Event()

    def play(number: int) -> None:
        rollout = opened(executor)
        for step in range(12):
            run(executor, rollout, f"echo {step} > f{number * (step % 3)}")
        rollout.close()

    players = [threading.Thread(target=play, args=(number,)) for number in range(3)]
    saver = threading.Thread(target=lambda: [executor.save(path) for _ in iter(done.is_set, True)])
    for thread in (*players, saver):
        thread.start()
    for thread in players:
        thread.join()
    done.set()
    saver.join()
    executor.save(path)
    assert TreeFile.read(path).roots["task"].unpack() == cut(executor.tree, executor.tree.root("task"))
    executor.close()
    with pytest.raises(TreeFileError, match="closed"):
        executor.save(path)
    assert TreeFile.read(path).roots


COMMANDS = ["echo {} > {}", "cat {}", "ls", "rm {}", "mkdir {}", "cd {}", "pwd", "false", "ls -l", "export {}=1", "env"]
LINES = st.builds(lambda c, a, b: c.format(a, b), st.sampled_from(COMMANDS), *[st.sampled_from("ab")] * 2)
SCRIPTS = st.lists(st.lists(LINES, min_size=1, max_size=5).map("\n".join), min_size=1, max_size=3)


@settings(max_examples=25, deadline=None)
@given(before=SCRIPTS, after=SCRIPTS)
def test_law_3_with_a_saved_tree_as_without(folder: Path, before: list[str], after: list[str]) -> None:
    path = folder / "law.tree"
    played(None, *before, save=path)
    warm, executor = played(path, *after, *before)
    cold, _ = played(None, *after, *before)
    assert warm == cold
    assert executor.stats.replay_mismatches == 0


# -- the file


def _result(number: int) -> ToolResult:
    raw = bytes(range(256)) * (number % 3)
    return ToolResult(
        "told\ud800\n" if number % 2 else raw.decode(errors="replace"), raw, b"\xff", number, duration=0.1
    )


def _subtree(steps: int) -> Subtree:
    """A chain with a loop at every node."""
    edges = [Edge(ToolCall("shell", {"command": f"c{n}", "more": [None, {"é": n}]}), 20.0) for n in range(steps)]
    states = [
        KeptState(combine(b"%d" % n), {"files /": combine(b"f")}, n % 2 or None, 0.5, (edges[0],)) for n in range(steps)
    ]
    nodes = [KeptNode(n or None, 0.25 if n else None, None, (edges[-1],)) for n in range(steps)]
    chain = [KeptStep(n, n + 1, edges[n], _result(n), n, n == 1) for n in range(steps - 1)]
    loops = [
        KeptStep(n, n, edges[-1], ToolResult("", exit_code=None, exit_reason=ExitReason.SIGNALED)) for n in range(2)
    ]
    return Subtree(states, nodes, [*chain, *loops])


STAMP = Stamp({"task": "t", "image": "i"}, "v")


def saved(path: Path, steps: int = 5) -> bytes:
    """A file of one root at `path`; what was written (another may have replaced it since)."""
    TreeFile({"a": SavedRoot.pack("a", STAMP, bytes(16), _subtree(steps))}).write(path)
    return path.read_bytes()


def test_nothing_is_lost_in_a_file(tmp_path: Path) -> None:
    saved(tmp_path / "a.tree")
    root = TreeFile.read(tmp_path / "a.tree").roots["a"]
    assert (root.name, root.stamp, root.loose, root.steps, root.states) == ("a", STAMP, bytes(16), 6, 5)
    assert root.unpack() == _subtree(5)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_damaged_file_is_refused_by_name(folder: Path, data: st.DataObject) -> None:
    path, good = folder / "damaged.tree", folder / "good.tree"
    whole = good.read_bytes() if good.exists() else saved(good)
    at = data.draw(st.integers(0, len(whole) - 1))
    kind = data.draw(st.sampled_from(["flip", "cut", "insert", "swap"]))
    if kind == "flip":
        damaged = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
    elif kind == "cut":
        damaged = whole[:at] + whole[at + data.draw(st.integers(1, len(whole))) :]
    elif kind == "insert":
        damaged = whole[:at] + data.draw(st.binary(min_size=1, max_size=9)) + whole[at:]
    else:
        damaged = whole[at:] + whole[:at]
    path.write_bytes(damaged)
    if damaged == whole:
        assert TreeFile.read(path).roots
        return
    with pytest.raises(TreeFileError, match=str(path)):
        TreeFile.read(path)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_part_that_says_nonsense_is_refused(data: st.DataObject) -> None:
    """Whoever writes a digest that fits can write anything: still nothing runs, and nothing breaks."""
    text = _subtree(3).as_json()
    at = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:at] + data.draw(st.binary(max_size=3)) + text[at + data.draw(st.integers(0, 3)) :]
    try:
        subtree = Subtree.from_json(damaged)
    except ValueError:
        return
    assert all(step.source < len(subtree.nodes) > step.target for step in subtree.steps)


def _sealed(head: object, packed: bytes = b"") -> bytes:
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    whole = b"bunshin-tree 1\n" + len(text).to_bytes(8, "little") + text + packed
    return whole + hashlib.blake2b(whole, digest_size=32).digest()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it is no call tree"),
        (b"bunshin-tree 2\nmore", "format '2'"),
        (b"bunshin-tree 1\n", "damaged"),
        (_sealed([{"name": "a"}]), "'packed'"),
        (_sealed({"a": 1}), "indices"),
        (_sealed(b"[" * 100000), "recursion"),
        (_sealed([], b"more"), "sizes"),
    ],
)
def test_what_is_no_such_file_is_refused(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "a.tree"
    path.write_bytes(content)
    with pytest.raises(TreeFileError, match=f"cannot use the call tree {path}: .*{why}"):
        TreeFile.read(path)


def test_a_damaged_file_is_refused_at_the_first_reset_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.tree"
    path.write_bytes(b"nonsense")
    env = ShellEnv(engine="dummy", tree=path)
    with pytest.raises(TreeFileError, match="no call tree"):
        env.reset()
    with pytest.raises(TreeFileError):
        env.save_tree()
    env.close()
    assert path.read_bytes() == b"nonsense"


def test_of_two_writers_one_wins_and_nobody_reads_half(tmp_path: Path) -> None:
    path = tmp_path / "a.tree"
    saved(path)
    sizes = (4, 200)

    def write(steps: int) -> None:
        for _ in range(8):
            saved(path, steps)

    writers = [threading.Thread(target=write, args=(steps,)) for steps in sizes]
    for writer in writers:
        writer.start()
    reads = {TreeFile.read(path).roots["a"].steps for _ in range(20)}
    for writer in writers:
        writer.join()
    assert reads <= {6, *(steps + 1 for steps in sizes)}
    assert os.listdir(tmp_path) == ["a.tree"]


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    for path in (tmp_path / "no" / "a.tree", tmp_path):
        with pytest.raises(TreeFileError, match="cannot write the call tree"):
            TreeFile().write(path)
    assert not os.listdir(tmp_path)
    assert not [name for name in os.listdir(tmp_path.parent) if name.startswith(f".{tmp_path.name}")]


# -- the stamp


def test_code_counts_by_what_it_is() -> None:
    def of(limit: int) -> Callable[[object], bool]:
        return lambda value: value == limit

    assert fingerprint(of(1)) == fingerprint(of(1)) != fingerprint(of(2))
    assert fingerprint(holds_done) not in ("", fingerprint(fingerprint))
    assert fingerprint({"a": 1, "b": [b"", None]}) == fingerprint({"b": [b"", None], "a": 1}) != fingerprint({"a": 1})
    assert fingerprint([[1], [2]]) != fingerprint([[1, 2], []])
    assert fingerprint(threading.Lock()) == "" == fingerprint(lambda: LOCK)
    assert stamp_of(SPEC, object()) is None
    assert stamp_of(dataclasses.replace(SPEC, frozen_time=datetime(2024, 1, 1, tzinfo=UTC)), ()) is not None


LOCK = threading.Lock()


# -- what users give


@pytest.fixture
def warm(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "a.tree"
    env = ShellEnv(task=TASK, engine="dummy", tree=path, audit=0)
    env.reset(seed=1)
    env.step("cat given")
    env.step("submit")
    env.save_tree()
    env.close()
    yield path


def test_a_vector_environment_goes_on_with_it(warm: Path, make_vector: Callable[..., BunshinVectorEnv]) -> None:
    envs = make_vector(2, task=TASK, tree=str(warm), audit=0)
    envs.reset(seed=1)
    assert envs.step(["cat given"] * 2)[0] == ("1\n", "1\n")
    envs.step(["submit"] * 2)
    assert (envs.stats.misses, envs.stats.verdicts_shared) == (0, 2)
    envs.save_tree(warm.with_name("b.tree"))
    assert TreeFile.read(warm.with_name("b.tree")).roots["task"].steps == 1


async def _in_a_pool(path: Path) -> int:
    async with RolloutPool(TASK, engine="dummy", tree=path, audit=0) as pool:
        async with pool.rollout() as rollout:
            assert await rollout.step("cat given") == "1\n"
        await pool.save_tree()
        return pool.stats.misses


def test_a_pool_goes_on_with_it(warm: Path) -> None:
    import asyncio

    assert asyncio.run(_in_a_pool(warm)) == 0
    assert TreeFile.read(warm).roots["task"].steps == 1


def test_only_a_cache_by_state_can_be_saved(tmp_path: Path) -> None:
    for options in ({"cache": False}, {"key": "history"}):
        with pytest.raises(ValueError, match="key='state'"):
            ShellEnv(engine="dummy", tree=tmp_path / "a.tree", **options)  # type: ignore[arg-type]
        executor = Executor(**options)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="cannot save the call tree"):
            executor.save(tmp_path / "a.tree")
        executor.close()
