"""What a prediction is: calls with probabilities, and the evidence for each.

A *predictor* names calls that may come next and says what speaks for each; how much that is worth is learned from what
then came (`learned`), so that a probability of 0.3 is right three times in ten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bunshin_gym.speculate.past import Past
from bunshin_gym.tools import ToolCall

__all__ = ["Guess", "Hint", "Predictor", "Source"]


@dataclass(frozen=True)
class Hint:
    """A call that may come next. `evidence`: what speaks for it, by name, each with its strength."""

    call: ToolCall
    evidence: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Guess:
    """A call that comes next with that probability. `by`: the predictors that named it."""

    call: ToolCall
    probability: float
    by: tuple[str, ...] = ()


class Source(Protocol):
    """Names calls. `learn` tells it which call came after a past; each call of a rollout once, in order.

    `prior`: what its evidence is worth before anything was learned, in log-odds.
    """

    name: str
    prior: Mapping[str, float]

    def hints(self, past: Past) -> Sequence[Hint]: ...

    def learn(self, past: Past, call: ToolCall) -> None: ...


class Predictor(Protocol):
    """Says how likely each of some calls is to come next, the likeliest first."""

    name: str

    def predict(self, past: Past) -> list[Guess]: ...

    def learn(self, past: Past, call: ToolCall) -> None: ...
