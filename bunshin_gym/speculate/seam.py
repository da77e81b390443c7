"""The place of speculation in the executor's flow, and the choice not to speculate.

`take` is asked at each miss whether the call has been made ahead of time; `observe` is told that a rollout has come to
its node and is left to its policy, so that likely next calls may start on forks. `NullSpeculator` never has a draft.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from bunshin_gym.rollout import Rollout
from bunshin_gym.tools import ToolResult
from bunshin_gym.tree import Edge, Node
from bunshin_gym.workspace import Workspace

__all__ = ["Draft", "NullSpeculator", "Speculator"]


@dataclass(frozen=True)
class Draft:
    """A call made ahead of time: the fork it was made in, and what it gave. Whoever takes it owns the workspace.

    `at` is the history of that fork: the taker's own node, or another one of the same state.
    """

    workspace: Workspace
    result: ToolResult
    at: Node


class Speculator(Protocol):
    """What the executor asks of one. Each method is called by the rollout's own thread, and may return late only where
    it says so."""

    def take(self, rollout: Rollout, edge: Edge) -> Draft | None:
        """The draft of that call, finished, perhaps after waiting for it; None where there is none.

        The call is then made, with the draft or without: until `observe`, nobody touches the rollout's workspace.
        """

    def observe(self, rollout: Rollout) -> None:
        """The rollout has come to its node, and its policy has the word."""

    def hint(self, rollout: Rollout, text: str) -> None:
        """The policy has written `text` of its next action so far."""

    def leave(self, rollout: Rollout) -> None:
        """No call of this rollout comes next: squash what was drafted for it alone."""

    def close(self) -> None:
        """Squash every draft, and wait until nothing is left of them."""


class NullSpeculator:
    """Never guesses."""

    def take(self, rollout: Rollout, edge: Edge) -> Draft | None:
        return None

    def observe(self, rollout: Rollout) -> None:
        return None

    def hint(self, rollout: Rollout, text: str) -> None:
        return None

    def leave(self, rollout: Rollout) -> None:
        return None

    def close(self) -> None:
        return None
