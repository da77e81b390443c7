"""Speculation: the place of it in the executor's flow, and the choice not to speculate.

`take` is asked at each miss whether the call has been made ahead of time; `observe` is told where a rollout now stands,
so that likely next calls may start on forks. `NullSpeculator`, which is what an executor uses today, never has a draft
and never starts one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from bunshin_gym.tools import ToolResult
from bunshin_gym.tree import Edge, Node
from bunshin_gym.workspace import Workspace

__all__ = ["Draft", "NullSpeculator", "Speculator"]


@dataclass(frozen=True)
class Draft:
    """A call made ahead of time: the fork it was made in, and what it gave. Whoever takes it owns the workspace."""

    workspace: Workspace
    result: ToolResult


class Speculator(Protocol):
    """What the executor asks of one."""

    def take(self, node: Node, edge: Edge) -> Draft | None:
        """The draft of that call, finished; None where there is none."""

    def observe(self, node: Node) -> None:
        """A rollout has arrived at `node`."""

    def hint(self, node: Node, text: str) -> None:
        """The policy of a rollout at `node` has written `text` of its next action so far."""

    def close(self) -> None:
        """Squash every draft."""


class NullSpeculator:
    """Never guesses."""

    def take(self, node: Node, edge: Edge) -> Draft | None:
        return None

    def observe(self, node: Node) -> None:
        return None

    def hint(self, node: Node, text: str) -> None:
        return None

    def close(self) -> None:
        return None
