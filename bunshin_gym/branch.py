"""The call tree of a run as something to keep: which calls rollouts shared, where they parted, what each gave.

A branch is one call and what followed it. Rollouts that made the same calls run through the same branches; a call that
depends on more than the state gives each rollout a branch of its own. It is plain data, and knows no executor: `draw`
(in picture) shows it in a terminal, a report in a browser.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from bunshin_gym.errors import TaskError
from bunshin_gym.tools import ExitReason, ToolCall, ToolResult
from bunshin_gym.tree import Node, Step
from bunshin_gym.treefile import SavedRoot

__all__ = ["Branch", "cut", "grow", "of_saved", "text_of"]

# Characters that are kept of what a call gave, and of the call itself: a tree is to be looked at, not to be run.
_OUTPUT, _CALL = 4_000, 8_000


@dataclass(eq=False)
class Branch:
    """One call. `rollouts` came through here; `ends` are those that went no further.

    Of those that came, `run` ran the call, `drafts` found it run ahead, `hits` were answered from the tree and `waits`
    by a sibling that was running it. `seconds`: what it took where it was run. `output`: what it gave, cut (`size`: the
    characters there were). `exit_reason` is empty where it simply exited. `state`: a name of what later calls see,
    equal where they see the same; `back`: the call changed nothing. `snapshot`: one was kept here at the end;
    `snapshots`: those that were made, `forks`: those made of them, `begun`: drafts of what may follow. `steps`,
    `nodes`: numbers by which events know it. The top of a tree is the task, and no call.
    """

    call: str = ""
    tool: str = ""
    exit_code: int | None = None
    exit_reason: str = ""
    seconds: float = 0.0
    output: str = ""
    size: int = 0
    private: bool = False
    back: bool = False
    state: str = ""
    verdict: float | None = None
    snapshot: bool = False
    snapshots: int = 0
    forks: int = 0
    begun: int = 0
    rollouts: int = 0
    run: int = 0
    drafts: int = 0
    hits: int = 0
    waits: int = 0
    ends: list[str] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    children: list[Branch] = field(default_factory=list, repr=False)

    def __iter__(self) -> Iterator[Branch]:
        """It and all below it, each before those below it. A deep one takes no stack."""
        waiting = [self]
        while waiting:
            branch = waiting.pop()
            yield branch
            waiting += reversed(branch.children)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON: a flat list, in which each branch says where the one above it is (`up`)."""
        places: dict[int, int] = {}
        above = {id(child): branch for branch in self for child in branch.children}
        flat = []
        for place, branch in enumerate(self):
            places[id(branch)] = place
            plain = {name: value for name, value in vars(branch).items() if name in _KEPT and value != _KEPT[name]}
            if branch is not self:
                plain["up"] = places[id(above[id(branch)])]
            flat.append(plain)
        return {"branches": flat}

    @classmethod
    def from_dict(cls, plain: object) -> Branch:
        """The inverse of `as_dict`. Raises TaskError where `plain` is no such thing."""
        try:
            flat = plain["branches"]  # type: ignore[index]
            branches = [cls(**{name: _checked(name, one[name]) for name in one if name != "up"}) for one in flat]
            for place, one in enumerate(flat[1:], 1):
                if not 0 <= one["up"] < place:
                    raise ValueError(f"branch {place} is below {one['up']}")
                branches[one["up"]].children.append(branches[place])
            return branches[0]
        except (TypeError, KeyError, ValueError, IndexError, AttributeError) as error:
            raise TaskError(f"this is no call tree: {type(error).__name__}: {error}") from error


_DEFAULTS = {
    f.name: f.default if f.default is not MISSING else []
    for f in fields(Branch)
    if f.default is not MISSING or f.default_factory is not MISSING
}
_KEPT = {name: value for name, value in _DEFAULTS.items() if name not in ("children", "steps", "nodes")}


def _checked(name: str, value: Any) -> Any:
    """A value from a file, of the kind that the field has."""
    default = _KEPT[name]
    if isinstance(default, list):
        good = isinstance(value, list) and all(isinstance(entry, str) for entry in value)
    elif name in ("exit_code", "verdict", "seconds"):
        good = value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))
    else:
        good = type(value) is type(default)
    if not good:
        raise ValueError(f"{name} is {value!r}")
    return value


def grow(name: str, root: Node, trails: Iterable[tuple[str, Sequence[tuple[Step, str]]]]) -> Branch:
    """The tree from `root` along the calls of each rollout: its name, its steps, and how each was answered."""
    top = Branch(name, snapshot=root.snapshot is not None, nodes=[root.number], state=_state(root))
    known: dict[tuple[int, object], Branch] = {}
    for rollout, trail in trails:
        branch = top
        top.rollouts += 1
        for step, how in trail:
            key = (id(branch), step if step.private or step.aside else step.edge)
            below = known.get(key)
            if below is None:
                below = known[key] = _branch(step)
                branch.children.append(below)
            branch = below
            _come(branch, step, how)
        branch.ends.append(rollout)
    return top


def of_saved(saved: SavedRoot) -> Branch:
    """The tree of a saved root: how often each call was made or answered. Raises ValueError where it is damaged."""
    subtree = saved.unpack()
    top = Branch(f"{saved.name}: {saved.steps} calls, {saved.states} states")
    branches = [top]
    for step in subtree.steps:
        made = _called(step.edge.call, step.result)
        made.rollouts, made.run, made.hits, made.back = 1 + step.hits, 1, step.hits, step.target == step.source
        branches[step.source].children.append(made)
        if step.target == len(branches):
            branches.append(made)
    return top


def _come(branch: Branch, step: Step, how: str) -> None:
    """One more rollout has come this way."""
    branch.rollouts += 1
    branch.run += how == "run"
    branch.drafts += how == "draft"
    branch.hits += how == "hit"
    branch.waits += how == "wait"
    if step.number not in branch.steps:
        branch.steps.append(step.number)
        if step.owns:
            branch.nodes.append(step.target.number)
            branch.snapshot = branch.snapshot or step.target.snapshot is not None
    if step.target.verdict is not None:
        branch.verdict = step.target.verdict


def _branch(step: Step) -> Branch:
    branch = _called(step.edge.call, step.result)
    branch.private = step.private or step.aside
    branch.back = step.target is step.source
    branch.state = _state(step.target)
    return branch


def _called(call: ToolCall, result: ToolResult) -> Branch:
    return Branch(
        call=cut(text_of(call), _CALL),
        tool=call.name,
        exit_code=result.exit_code,
        exit_reason="" if result.exit_reason is ExitReason.EXITED else result.exit_reason.value,
        seconds=result.duration,
        output=cut(result.output, _OUTPUT),
        size=len(result.output),
    )


def _state(node: Node) -> str:
    return node.state.loose.hex()[:12] if node.state is not None else ""


def text_of(call: ToolCall) -> str:
    """A call as a person would write it: what is run, or the arguments as JSON."""
    for name in ("command", "code"):
        if isinstance(call.args.get(name), str) and len(call.args) == 1:
            return str(call.args[name])
    return f"{call.name} {json.dumps(dict(call.args), ensure_ascii=False)}"


def cut(text: str, limit: int) -> str:
    """At most about `limit` characters: the head and the tail, with a line between that says what is missing."""
    if len(text) <= limit:
        return text
    head, tail = limit - limit // 3, limit // 3
    return f"{text[:head]}\n[... {len(text) - head - tail} characters left out ...]\n{text[-tail:] if tail else ''}"
