"""Groups of scripted rollouts, on the dummy engine: what they share, how they fail, and the picture of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from bunshin_gym.branch import Branch, grow
from bunshin_gym.errors import TaskError
from bunshin_gym.executor import Executor
from bunshin_gym.group import Group, play, repeat
from bunshin_gym.picture import draw
from bunshin_gym.tools import ToolCall
from bunshin_gym.workspace import Workspace, WorkspaceSpec

DUMMY = WorkspaceSpec(engine="dummy")


def calls(*commands: str) -> list[ToolCall]:
    return [ToolCall("shell", {"command": command}) for command in commands]


SCRIPTS = {
    "a": calls("echo one > f", "cat f", "echo two >> f", "cat f"),
    "b": calls("echo one > f", "cat f", "rm f", "ls"),
    "c": calls("echo one > f", "cat f", "rm f", "cat f"),
}


@pytest.fixture
def made() -> Iterator[Callable[..., Group]]:
    """Makes groups and closes them, and their executors, in the end."""
    groups: list[Group] = []

    def make(scripts: dict[str, list[ToolCall]], *, cache: bool = True, share: bool = True, **options: object) -> Group:
        executor = Executor(cache=cache, share=share, group=len(scripts))
        options.setdefault("prepare", partial(Workspace, DUMMY))
        groups.append(Group(executor, "task", scripts=scripts, timeout=10.0, **options))  # type: ignore[arg-type]
        return groups[-1]

    yield make
    for group in groups:
        group.close()
        group.executor.close()


@pytest.mark.parametrize("jobs", [None, 1, 2])
@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("cache", [True, False])
def test_every_rollout_gets_what_it_would_get_alone(
    made: Callable[..., Group], cache: bool, share: bool, jobs: int | None
) -> None:
    group = made(repeat(SCRIPTS, 6), cache=cache, share=share)
    play([group], jobs=jobs)
    assert [played.failure for played in group.played] == [""] * 6
    outputs = [[result.output for result in played.results] for played in group.played]
    assert outputs[0] == outputs[3] == ["", "one\n", "", "one\ntwo\n"]
    assert outputs[1] == outputs[4] == ["", "one\n", "", ""]
    assert [played.results[-1].exit_code for played in group.played] == [0, 0, 1, 0, 0, 1]
    stats = group.executor.stats
    assert stats.calls == 24
    # Different calls from different states: 2 shared ones, then 2 of a's and 1 + 2 of b's and c's.
    assert stats.misses == (7 if cache else 24)


def test_verdicts_are_kept(made: Callable[..., Group]) -> None:
    group = made(SCRIPTS, verifier=lambda ws: float(ws.run("cat f").output == "one\ntwo\n"))
    play([group])
    assert [played.reward for played in group.played] == [1.0, 0.0, 0.0]


def test_a_rollout_that_loses_its_workspace_does_not_stop_the_others(made: Callable[..., Group]) -> None:
    group = made({"bad": calls("echo 1", "bunshin-fault lose", "echo 2"), "good": calls("echo 1", "echo 3")})
    play([group])
    bad, good = group.played
    assert bad.failure
    assert len(bad.results) <= 2
    assert (good.failure, [result.output for result in good.results]) == ("", ["1\n", "3\n"])


@pytest.mark.parametrize("before", [None, lambda: None])
def test_a_task_that_cannot_be_prepared_is_a_failure_of_its_rollouts(
    made: Callable[..., Group], before: Callable[[], None] | None
) -> None:
    def refuse() -> Workspace:
        raise TaskError("no such thing")

    group = made(SCRIPTS, prepare=refuse)
    play([group], before=before)
    assert [played.failure for played in group.played] == ["TaskError: no such thing"] * 3


def test_the_start_up_can_be_kept_apart(made: Callable[..., Group]) -> None:
    group = made(SCRIPTS, cache=False, share=False)
    seen: list[tuple[int, int]] = []
    play([group], before=lambda: seen.append((group.executor.stats.prepared, group.executor.stats.calls)))
    assert seen == [(3, 0)]


def test_closing_ends_running_calls(made: Callable[..., Group]) -> None:
    group = made({"long": calls("echo 1", "sleep 1000"), "longer": calls("echo 2", "sleep 2000")})
    begun = threading.Semaphore(0)

    def close_when_begun() -> None:
        assert begun.acquire(timeout=10) and begun.acquire(timeout=10)
        group.close()

    thread = threading.Thread(target=close_when_begun)
    thread.start()
    play([group], on_call=lambda _: begun.release())
    thread.join()
    assert all(played.failure for played in group.played)


def test_what_a_callback_raises_comes_out_and_everything_is_closed(made: Callable[..., Group]) -> None:
    group = made(SCRIPTS)

    def fail(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play([group], on_call=fail)


def test_repeat_goes_round() -> None:
    assert list(repeat({"a": [], "b": []}, 3)) == ["a #1", "b #2", "a #3"]


# -- the picture


def test_the_tree_shows_what_was_shared(made: Callable[..., Group]) -> None:
    group = made(SCRIPTS)
    play([group], jobs=1)
    tree = group.tree()
    assert (tree.call, tree.rollouts, tree.snapshot) == ("task", 3, True)
    (first,) = tree.children
    (second,) = first.children
    assert (first.call, first.rollouts, second.call, second.rollouts) == ("echo one > f", 3, "cat f", 3)
    assert {child.call: child.rollouts for child in second.children} == {"echo two >> f": 1, "rm f": 2}
    assert Branch.from_dict(tree.as_dict()).as_dict() == tree.as_dict()
    ends = [end for end in walk(tree) if end.ends]
    assert sorted(name for end in ends for name in end.ends) == ["a", "b", "c"]


def walk(branch: Branch) -> Iterator[Branch]:
    yield branch
    for child in branch.children:
        yield from walk(child)


def test_rollouts_that_share_nothing_have_branches_of_their_own(made: Callable[..., Group]) -> None:
    group = made({"a": calls("echo 1"), "b": calls("echo 1")}, cache=False, share=False)
    play([group])
    assert [child.rollouts for child in group.tree().children] == [1, 1]


def test_a_drawing_fits_its_width_and_says_how_calls_ended(made: Callable[..., Group]) -> None:
    long = "echo " + "x" * 300
    group = made({**SCRIPTS, "d": calls(long, "cat nowhere")})
    play([group])
    text = draw(group.tree(), width=60, colour=False)
    assert all(len(line) <= 60 for line in text.splitlines())
    assert "exit 1" in text
    assert "\x1b" not in text
    assert "\x1b[" in draw(group.tree(), width=60)


def test_what_is_no_tree_is_said_to_be_none() -> None:
    with pytest.raises(TaskError, match="no call tree"):
        Branch.from_dict({"call": "ls"})


def test_an_empty_tree_is_drawn() -> None:
    executor = Executor()
    assert draw(grow("nothing", executor.tree.root("x"), []), colour=False) == "nothing"
    executor.close()
