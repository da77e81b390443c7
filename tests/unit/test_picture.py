"""Call trees: grown from what rollouts were answered, kept as plain data, and drawn as text of any width."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from report.trees import HOSTILE, tree_of
from unit.rollouts import Begin, run

from bunshin_gym.branch import Branch, cut, grow
from bunshin_gym.errors import TaskError
from bunshin_gym.executor import Executor
from bunshin_gym.picture import clipped, columns, draw, printable


@pytest.fixture
def executor() -> Iterator[Executor]:
    made = Executor(group=3, snapshot_seconds=0.0, audit=0.0)
    yield made
    made.close()


def test_a_tree_says_how_each_call_was_answered(executor: Executor, begin: Begin) -> None:
    rollouts = [begin() for _ in range(3)]
    for rollout in rollouts:
        run(executor, rollout, "ls")
    run(executor, rollouts[0], "echo a > f")
    run(executor, rollouts[1], "echo b > f; exit 3")
    tree = grow("task", rollouts[0].node.root, [(f"r{i}", rollout.way) for i, rollout in enumerate(rollouts)])
    (first,) = tree.children
    assert (tree.rollouts, first.rollouts, first.run, first.hits, first.waits) == (3, 3, 1, 2, 0)
    assert first.back and not first.children[0].back
    assert first.state == tree.state and first.children[0].state not in ("", first.state)
    assert (first.ends, [(c.call, c.exit_code, c.run, c.ends) for c in first.children]) == (
        ["r2"],
        [("echo a > f", 0, 1, ["r0"]), ("echo b > f; exit 3", 3, 1, ["r1"])],
    )
    assert first.output.split() == ["ready"] and first.size == len(first.output)


def test_plain_data_and_back() -> None:
    tree = tree_of(500)
    plain = json.loads(json.dumps(tree.as_dict()))
    again = Branch.from_dict(plain)
    assert again.as_dict() == tree.as_dict()
    assert [one.call for one in again] == [one.call for one in tree]


def test_what_is_no_tree_is_refused() -> None:
    bad: list[Any] = [None, [], {"branches": []}]
    bad += [{"branches": flat} for flat in ([7], [{"call": 7}], [{"what": "?"}], [{"ends": [1]}], [{"seconds": True}])]
    bad += [{"branches": flat} for flat in ([{}, {"up": 1}], [{}, {"up": -1}], [{}, {}], [{"children": []}])]
    for plain in bad:
        with pytest.raises(TaskError, match="this is no call tree"):
            Branch.from_dict(plain)


def test_no_line_is_wider_than_it_may_be() -> None:
    tree = tree_of(300)
    tree.children[0].call = "echo 日本語の長い文字列 " * 9 + "e\u0301" * 40
    tree.children[0].ends = ["ロールアウト" * 20]
    for width in (10, 24, 40, 80, 200):
        lines = draw(tree, width=width, colour=False).splitlines()
        assert max(map(columns, lines)) <= max(width, 24)
        # One for each branch and each end, whatever is in their text.
        assert len(lines) == len(list(tree)) + sum(len(one.ends) for one in tree)


def test_nothing_that_a_terminal_would_obey_is_drawn() -> None:
    shown = draw(Branch("\x1b]0;title\x07", children=[Branch(HOSTILE, ends=["a\u2028b"])]), width=300, colour=False)
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert "\\x1b]0;title\\x07" in shown and "\\x1b[2J\\x07 \\u{202e}gnp.exe \\u{d800}" in shown
    assert shown.count("\n") == 2


def test_a_deep_tree_takes_no_stack() -> None:
    top = branch = Branch("deep")
    for number in range(5000):
        branch.children = [Branch(f"call {number}"), Branch("aside", ends=["an end"])]
        branch = branch.children[0]
    assert Branch.from_dict(top.as_dict()).as_dict() == top.as_dict()
    lines = draw(top, width=80, colour=False).splitlines()
    assert len(lines) == 15_001 and max(map(columns, lines)) <= 80
    assert any("call 4999" in line for line in lines)


def test_colours_only_where_they_are_asked_for() -> None:
    tree = tree_of(20)
    plain, coloured = draw(tree, colour=False), draw(tree, colour=True)
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[\d+m", "", coloured) == plain


def test_text_is_cut_with_a_mark() -> None:
    assert cut("short", 10) == "short"
    long = cut("a" * 600 + "b" * 400, 300)
    assert long.startswith("a" * 200) and long.endswith("b" * 100)
    assert "700 characters left out" in long
    assert clipped("日本語", 5) == "日..." and clipped("日本語", 6) == "日本語" and clipped("abc", 0) == ""
    assert printable("a\tb\x85\u200b日é") == "a\\x09b\\x85\\u{200b}日é"
