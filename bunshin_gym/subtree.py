"""What is kept of a call tree below one root: plain records, and their spelling as JSON.

Calls, results, states, nodes and steps are numbered; nodes and steps name the others by number. Node 0 is the root. The
steps come in an order in which a node's own step is met before those that start there, so that a tree grows from them
in one go. Nothing private to a rollout is in it, no snapshot, and no digest that depends on times.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from bunshin_gym.node import Edge
from bunshin_gym.state import DIGEST_SIZE
from bunshin_gym.tools import ExitReason, ToolCall, ToolResult

__all__ = ["KeptNode", "KeptState", "KeptStep", "Subtree"]

T = TypeVar("T")


@dataclass(frozen=True)
class KeptState:
    """A state: its digest and the parts of it, what the verifier said (None: nothing), which calls are not trusted."""

    loose: bytes
    parts: Mapping[str, bytes] = field(default_factory=dict)
    verdict: float | None = None
    frozen_verdict: float | None = None
    volatile: tuple[Edge, ...] = ()


@dataclass(frozen=True)
class KeptNode:
    """A history: the number of its state (None: not known), its own verdicts, which calls are not trusted there."""

    state: int | None = None
    verdict: float | None = None
    frozen_verdict: float | None = None
    volatile: tuple[Edge, ...] = ()


@dataclass(frozen=True)
class KeptStep:
    """A call at node `source` that led to node `target`. `hits`: how often it answered.

    Of one that is `aside` only the time it took is kept of what it gave: where it led may be met as a state.
    """

    source: int
    target: int
    edge: Edge
    result: ToolResult
    hits: int = 0
    aside: bool = False


@dataclass(frozen=True)
class Subtree:
    """All below one root."""

    states: Sequence[KeptState] = ()
    nodes: Sequence[KeptNode] = (KeptNode(),)
    steps: Sequence[KeptStep] = ()

    def without_verdicts(self) -> Subtree:
        states = [replace(state, verdict=None, frozen_verdict=None) for state in self.states]
        nodes = [replace(node, verdict=None, frozen_verdict=None) for node in self.nodes]
        return Subtree(states, nodes, self.steps)

    def as_json(self) -> bytes:
        """One JSON text: ASCII, whatever the calls gave."""
        edges, results = _Numbers[Edge](_edge), _Numbers[ToolResult](_result, by_identity=True)
        digests = _Numbers[bytes](bytes.hex)
        states = [
            [s.loose.hex(), {name: digests.of(p) for name, p in s.parts.items()}, s.verdict, s.frozen_verdict,
             edges.of_all(s.volatile)]
            for s in self.states
        ]  # fmt: skip
        nodes = [[n.state, n.verdict, n.frozen_verdict, edges.of_all(n.volatile)] for n in self.nodes]
        steps = [[s.source, s.target, edges.of(s.edge), results.of(s.result), s.hits, int(s.aside)] for s in self.steps]
        tables = {"edges": edges.table, "results": results.table, "digests": digests.table}
        whole = {**tables, "states": states, "nodes": nodes, "steps": steps}
        return json.dumps(whole, separators=(",", ":"), allow_nan=False).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Subtree:
        """The inverse of `as_json`. Raises ValueError where the text is anything else."""
        try:
            whole = json.loads(text)
            edges = [_edge_of(*row) for row in whole["edges"]]
            results = [_result_of(*row) for row in whole["results"]]
            digests = [_digest(text) for text in whole["digests"]]
            states = [
                KeptState(_digest(loose), {k: _at(digests, i) for k, i in parts.items()}, _verdict(verdict),
                          _verdict(frozen), tuple(_at(edges, i) for i in volatile))
                for loose, parts, verdict, frozen, volatile in whole["states"]
            ]  # fmt: skip
            nodes = [
                KeptNode(None if state is None else _number(state, len(states)), _verdict(verdict),
                         _verdict(frozen), tuple(_at(edges, i) for i in volatile))
                for state, verdict, frozen, volatile in whole["nodes"]
            ]  # fmt: skip
            steps = []
            known = 1
            for source, target, edge, result, hits, aside in whole["steps"]:
                made = KeptStep(_number(source, known), _number(target, len(nodes)), _at(edges, edge),
                                _at(results, result), _number(hits, 1 << 62), bool(_number(aside, 2)))  # fmt: skip
                if made.target > known:
                    raise ValueError(f"a step leads to node {made.target} before there is one")
                known += made.target == known
                steps.append(made)
            if known != len(nodes):
                raise ValueError(f"{len(nodes)} nodes, and steps to {known} of them")
        except (TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error
        return cls(states, nodes, steps)


class _Numbers(Generic[T]):
    """A table of rows, each thing once, by number."""

    def __init__(self, row: Callable[[T], Any], by_identity: bool = False) -> None:
        self.table: list[Any] = []
        self._row = row
        self._by_identity = by_identity
        self._known: dict[object, int] = {}

    def of(self, thing: T) -> int:
        key: object = id(thing) if self._by_identity else thing
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = len(self.table)
            self.table.append(self._row(thing))
        return number

    def of_all(self, things: Sequence[T]) -> list[int]:
        return [self.of(thing) for thing in things]


def _edge(edge: Edge) -> list[Any]:
    return [edge.call.name, dict(edge.call.args), edge.timeout]


def _result(result: ToolResult) -> list[Any]:
    # Mostly the output is what came on standard output, decoded: then it need not be there twice.
    plain = result.stdout.decode(errors="replace") == result.output
    return [
        None if plain else result.output, result.stdout.decode("latin-1"), result.stderr.decode("latin-1"),
        result.exit_code, result.exit_reason.value, result.truncated, result.duration,
        result.stdout_total, result.stderr_total, result.notice, result.call_id,
    ]  # fmt: skip


def _edge_of(name: object, args: object, timeout: object) -> Edge:
    if not isinstance(args, dict):
        raise ValueError("the arguments of a call are no object")
    return Edge(ToolCall(_text(name), args), _seconds(timeout))


def _result_of(
    output: object, stdout: object, stderr: object, exit_code: object, reason: object, truncated: object,
    duration: object, stdout_total: object, stderr_total: object, notice: object, call_id: object,
) -> ToolResult:  # fmt: skip
    raw = _text(stdout).encode("latin-1")
    if not isinstance(truncated, bool):
        raise ValueError("whether a result was truncated is not told")
    return ToolResult(
        raw.decode(errors="replace") if output is None else _text(output),
        raw,
        _text(stderr).encode("latin-1"),
        None if exit_code is None else _number(exit_code, 1 << 31, -(1 << 31)),
        ExitReason(reason),
        truncated,
        _seconds(duration),
        _number(stdout_total, 1 << 62),
        _number(stderr_total, 1 << 62),
        _text(notice),
        _number(call_id, 1 << 62),
    )


def _at(table: Sequence[T], number: object) -> T:
    return table[_number(number, len(table))]


def _number(value: object, below: int, least: int = 0) -> int:
    if type(value) is not int or not least <= value < below:
        raise ValueError(f"{value!r} is no number from {least} to below {below}")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value


def _seconds(value: object) -> float:
    if type(value) not in (int, float) or not 0 <= float(value) < float("inf"):  # type: ignore[arg-type]
        raise ValueError(f"{value!r} is no number of seconds")
    return float(value)  # type: ignore[arg-type]


def _verdict(value: object) -> float | None:
    if value is None:
        return None
    if _seconds(value) > 1:
        raise ValueError(f"{value!r} is no verdict")
    return _seconds(value)


def _digest(value: object) -> bytes:
    digest = bytes.fromhex(_text(value))
    if len(digest) != DIGEST_SIZE:
        raise ValueError(f"{value!r} is no digest")
    return digest
