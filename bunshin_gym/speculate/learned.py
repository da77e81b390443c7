"""How much evidence is worth: a logistic regression of "the call came next" on what spoke for it, learned as one goes.

Each time one of several sources has named calls and the next call is known, every named call is an example: right or
wrong. So the probabilities are calibrated by what really came, and a source that is often wrong is soon believed less.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from bunshin_gym.speculate.past import Past
from bunshin_gym.speculate.predict import Guess, Source
from bunshin_gym.tools import ToolCall

__all__ = ["START", "Learned"]

_RATE = 0.6
START = -2.5  # the log-odds of a call that nothing speaks for
_DECAY = 1e-4
_MOST = 0.97  # of the probability that all guesses together may claim


class Learned:
    """The calls that `sources` name, with probabilities. One of them, or a mix of several.

    The weights are learned by `learn`.
    """

    def __init__(self, name: str, sources: Sequence[Source]) -> None:
        self.name = name
        self.sources = tuple(sources)
        self._weights: dict[str, float] = {"": START}
        for source in sources:
            self._weights |= source.prior
        self._squares: dict[str, float] = {}
        self._last: tuple[Past, dict[ToolCall, tuple[dict[str, float], tuple[str, ...]]]] | None = None

    def predict(self, past: Past) -> list[Guess]:
        """The calls that may come next, the likeliest first. Their probabilities add up to less than 1."""
        named = self._named(past)
        scored = {call: self._chance(evidence) for call, (evidence, _) in named.items()}
        total = sum(scored.values())
        scale = min(1.0, _MOST / total) if total else 1.0
        guesses = [Guess(call, scale * chance, named[call][1]) for call, chance in scored.items()]
        return sorted(guesses, key=lambda guess: -guess.probability)

    def learn(self, past: Past, call: ToolCall) -> None:
        """`call` came after `past`."""
        for candidate, (evidence, _) in self._named(past).items():
            self._example(evidence, float(candidate == call))
        self._last = None
        for source in self.sources:
            source.learn(past, call)

    def _named(self, past: Past) -> dict[ToolCall, tuple[dict[str, float], tuple[str, ...]]]:
        if self._last is not None and self._last[0] is past:
            return self._last[1]
        named: dict[ToolCall, tuple[dict[str, float], tuple[str, ...]]] = {}
        for source in self.sources:
            for hint in source.hints(past):
                evidence, by = named.get(hint.call, ({"": 1.0}, ()))
                evidence.update((name, value) for name, value in hint.evidence.items() if value)
                named[hint.call] = evidence, (*by, source.name)
        for evidence, by in named.values():
            if len(self.sources) > 1:
                evidence["by " + "+".join(by)] = 1.0
        self._last = past, named
        return named

    def _chance(self, evidence: Mapping[str, float]) -> float:
        odds = sum(self._weights.get(name, 0.0) * value for name, value in evidence.items())
        return 1 / (1 + math.exp(-max(-30.0, min(30.0, odds))))

    def _example(self, evidence: Mapping[str, float], came: float) -> None:
        error = self._chance(evidence) - came
        for name, value in evidence.items():
            slope = error * value + _DECAY * self._weights.get(name, 0.0)
            self._squares[name] = self._squares.get(name, 1.0) + slope * slope
            self._weights[name] = self._weights.get(name, 0.0) - _RATE * slope / math.sqrt(self._squares[name])
