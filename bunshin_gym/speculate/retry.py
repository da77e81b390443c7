"""Retry: a rollout's own calls again. The same test after an edit, the same look at a file, what followed last time."""

from __future__ import annotations

from collections.abc import Mapping

from bunshin_gym.speculate.past import Past, changes, paths, said, shape
from bunshin_gym.speculate.predict import Hint
from bunshin_gym.tools import ToolCall

__all__ = ["Retry"]

_NAMED = 12
_BACK = 48


class Retry:
    """Names calls of the rollout itself; what it learns, it learns from the past it is given."""

    name = "retry"
    prior: Mapping[str, float] = {}

    def hints(self, past: Past) -> list[Hint]:
        calls = past.recent[:_BACK]
        texts = [one.text if (one := said(call)) is not None else call.name for call in calls]
        kinds = [shape(text) for text in texts]
        if len(calls) < 2:
            return []
        lately = set(paths(texts[0]))
        edited = [changes(text) for text in texts]
        times: dict[str, int] = {}
        for text in texts:
            times[text] = times.get(text, 0) + 1
        found: dict[str, Hint] = {}
        kind_rank: dict[str, int] = {}
        edits = 0
        for back, (call, text) in enumerate(zip(calls, texts, strict=True)):
            rank = kind_rank[kinds[back]] = kind_rank.get(kinds[back], -1) + (text not in found)
            if text not in found:
                follows = back + 1 < len(calls) and kinds[back + 1] == kinds[0]
                exactly = back + 1 < len(calls) and texts[back + 1] == texts[0]
                longer = follows and back + 2 < len(calls) and len(kinds) > 1 and kinds[back + 2] == kinds[1]
                since = f"{min(edits, 2)} edits"
                evidence = {
                    f"retry back {min(back, 8)}": 1.0,
                    f"retry {kinds[back].split(' ')[0]} {since}": 1.0,
                    f"retry {kinds[back].split(' ')[0]} after {kinds[0].split(' ')[0]}": 1.0,
                    f"retry {since}, {min(times[text], 3)} times": 1.0,
                    f"retry rank {min(rank, 3)}": 1.0,
                    "retry follows": float(follows),
                    "retry follows exactly": float(exactly),
                    "retry follows longer": float(longer),
                    "retry same paths": float(bool(lately & set(paths(text)))),
                    "retry just edited": float(edited[0]),
                    f"retry failed {bool(past.made[-1 - back].result.exit_code)} {since}": 1.0,
                }
                found[text] = Hint(call, evidence)
            edits += edited[back]
        scored = sorted(
            found.values(),
            key=lambda hint: -(3 * hint.evidence["retry follows exactly"] + hint.evidence["retry follows"]),
        )
        return scored[:_NAMED]

    def learn(self, past: Past, call: ToolCall) -> None:
        return None
