"""The call tree of a run as something to keep and to look at: which calls rollouts shared, and where they parted.

A branch is one call and what followed it. Rollouts that made the same calls run through the same branches; a call that
depends on more than the state gives each rollout a branch of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from bunshin_gym.errors import TaskError
from bunshin_gym.tools import ToolCall
from bunshin_gym.tree import Node, Step
from bunshin_gym.treefile import SavedRoot

__all__ = ["Branch", "draw", "grow", "of_saved"]

_BOLD, _DIM, _RED, _GREEN, _CYAN, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[36m", "\x1b[0m"


@dataclass
class Branch:
    """One call. `rollouts` took it, it ran once in `seconds`; `ends` are the rollouts that went no further."""

    call: str = ""
    exit_code: int | None = None
    seconds: float = 0.0
    private: bool = False
    snapshot: bool = False
    rollouts: int = 0
    ends: list[str] = field(default_factory=list)
    children: list[Branch] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Branch:
        """The inverse of `as_dict`. Raises TaskError where `plain` is no such thing."""
        try:
            children = [cls.from_dict(child) for child in plain["children"]]
            return cls(**{**plain, "children": children})
        except (TypeError, KeyError) as error:
            raise TaskError(f"this is no call tree: {error}") from error


def grow(name: str, root: Node, trails: Iterable[tuple[str, Iterable[Step]]]) -> Branch:
    """The tree from `root` along the calls that each rollout (its name, its trail) was answered."""
    top = Branch(name, snapshot=root.snapshot is not None)
    known: dict[tuple[int, object], Branch] = {}
    for rollout, trail in trails:
        branch = top
        top.rollouts += 1
        for step in trail:
            key = (id(branch), step if step.private or step.aside else step.edge)
            below = known.get(key)
            if below is None:
                below = known[key] = _branch(step)
                branch.children.append(below)
            branch = below
            branch.rollouts += 1
        branch.ends.append(rollout)
    return top


def of_saved(saved: SavedRoot) -> Branch:
    """The tree of a saved root: how often each call was made or answered. Raises ValueError where it is damaged."""
    subtree = saved.unpack()
    branches = [Branch(f"{saved.name}: {saved.steps} calls, {saved.states} states")]
    for step in subtree.steps:
        made = Branch(_shown(step.edge.call), step.result.exit_code, step.result.duration, rollouts=1 + step.hits)
        branches[step.source].children.append(made)
        if step.target == len(branches):
            branches.append(made)
    return branches[0]


def _branch(step: Step) -> Branch:
    snapshot = step.target is not step.source and step.target.snapshot is not None
    return Branch(_shown(step.edge.call), step.result.exit_code, step.seconds, step.private or step.aside, snapshot)


def _shown(call: ToolCall) -> str:
    args = call.args
    return str(args.get("command") or args.get("code") or args.get("path") or args.get("argv") or call)


def draw(tree: Branch, *, width: int = 100, colour: bool = True) -> str:
    """The tree as lines of at most `width` characters: how many rollouts, the call, what it took, how it ended."""
    told = f"  {tree.rollouts} rollouts{', snapshot' if tree.snapshot else ''}" if tree.rollouts else ""
    lines = [_paint(tree.call, _BOLD, colour) + told]
    lines += _lines(tree, "", width, colour)
    return "\n".join(lines)


def _lines(branch: Branch, indent: str, width: int, colour: bool) -> Iterator[str]:
    # A chain that nobody leaves is drawn straight down; only a parting indents.
    entries: list[Branch | str] = [*branch.children, *branch.ends]
    for number, entry in enumerate(entries):
        last = number == len(entries) - 1
        corner, below = ("└─ ", "   ") if last else ("├─ ", "│  ")
        if len(entries) == 1 and isinstance(entry, Branch):
            corner = "├─ "  # the chain goes on below
        if isinstance(entry, str):
            yield indent + corner + _paint(f"({entry})"[: width - len(indent) - 3], _DIM, colour)
            continue
        yield indent + corner + _line(entry, width - len(indent) - 3, colour)
        if len(entries) == 1:
            yield from _lines(entry, indent, width, colour)
        else:
            yield from _lines(entry, indent + below, width, colour)


def _line(branch: Branch, width: int, colour: bool) -> str:
    count = f"{branch.rollouts}x"
    marks = [f"{branch.seconds * 1000:.0f} ms"]
    if branch.exit_code:
        marks.append(f"exit {branch.exit_code}")
    if branch.snapshot:
        marks.append("snapshot")
    if branch.private:
        marks.append("private")
    tail = "  [" + ", ".join(marks) + "]"
    room = max(8, width - len(count) - 1 - len(tail))
    text = " ".join(branch.call.split())
    text = text if len(text) <= room else text[: room - 3] + "..."
    shade = _GREEN if branch.rollouts > 1 else _RED if branch.exit_code else ""
    return f"{_paint(count, _CYAN, colour)} {_paint(text, shade, colour)}{_paint(tail, _DIM, colour)}"


def _paint(text: str, shade: str, colour: bool) -> str:
    return f"{shade}{text}{_PLAIN}" if colour and shade else text
