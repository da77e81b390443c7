"""Patterns: which kind of call follows which, with arguments from what was just done. Learned across all tasks.

A call is a *template* with its paths left open: the first of the paths used last, the second, the first that the last
output shows. After `cat > test.py <<EOF` comes `python {0}`: run what was just written, whatever its name.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Hashable, Mapping

from bunshin_gym.speculate.past import PATH, Past, Said, paths, said, shape
from bunshin_gym.speculate.predict import Hint
from bunshin_gym.tools import ToolCall

__all__ = ["Patterns"]

_NAMED = 10
_LONGEST = 300  # characters of a command that may be a template: longer ones are nobody else's
_SLOT = re.compile(r"\{(\w+)\}")


class Patterns:
    """Templates by the kinds of the calls before. `contexts` of them are kept, those used last."""

    name = "patterns"
    prior: Mapping[str, float] = {}

    def __init__(self, contexts: int = 20000) -> None:
        self._after: OrderedDict[Hashable, dict[str, float]] = OrderedDict()
        self._most = contexts

    def hints(self, past: Past) -> list[Hint]:
        like = past.like()
        if like is None:
            return []
        slots = _slots(past)
        filled: dict[str, Hint] = {}
        for order, context in _contexts(past):
            after = self._after.get(context)
            if after is None:
                continue
            total = sum(after.values())
            rank = 0
            for template in sorted(after, key=after.__getitem__, reverse=True)[: 3 * _NAMED]:
                text = _fill(template, slots)
                if text is None or text in filled:
                    continue
                evidence = {
                    f"patterns {order}": 1.0,
                    f"patterns {order} share": after[template] / (total + 1),
                    f"patterns {order} rank {min(rank, 3)}": 1.0,
                    f"patterns {order} seen {min(int(after[template]), 5)}": 1.0,
                    "patterns open": float("{" in template),
                }
                filled[text] = Hint(Said(past.habit, text, None).spoken(like), evidence)
                rank += 1
                if rank >= _NAMED:
                    break
            if len(filled) >= _NAMED:
                break
        return list(filled.values())

    def learn(self, past: Past, call: ToolCall) -> None:
        one = said(call)
        if one is None or call.name == "read_file" or len(one.text) > _LONGEST or "{" in one.text or "\n" in one.text:
            return
        template = _template(one.text, _slots(past))
        for _, context in _contexts(past):
            after = self._after.setdefault(context, {})
            self._after.move_to_end(context)
            after[template] = after.get(template, 0) + 1
        while len(self._after) > self._most:
            self._after.popitem(last=False)


def _contexts(past: Past) -> list[tuple[str, Hashable]]:
    """From the most particular to the most general."""
    texts = [one.text for call in past.recent[:3] if (one := said(call)) is not None]
    kinds = [shape(text) for text in texts]
    failed = bool(past.made and past.made[-1].result.exit_code)
    found: list[tuple[str, Hashable]] = []
    if texts:
        found.append(("template", ("t", _template(texts[0], _slots(Past(past.task, past.made[:-1]))), failed)))
    if len(kinds) > 2:
        found.append(("3", (*kinds, failed)))
    if len(kinds) > 1:
        found.append(("2", (*kinds[:2], failed)))
    if kinds:
        found.append(("1", (kinds[0], failed)))
    return found


def _slots(past: Past) -> dict[str, str]:
    """What templates may leave open, and what it is now: paths used last (0, 1, ...), and seen in the output (a, b)."""
    used: dict[str, None] = {}
    for call in past.recent[:8]:
        one = said(call)
        if one is not None:
            used |= dict.fromkeys(path for path in paths(one.text) if path not in used)
    slots = {str(i): path for i, path in enumerate(list(used)[:6])}
    if past.made:
        seen = [path for path in paths(past.made[-1].result.output[:600]) if path not in used]
        slots |= {"abc"[i]: path for i, path in enumerate(seen[:3])}
    return slots


def _template(text: str, slots: dict[str, str]) -> str:
    names = {path: f"{{{name}}}" for name, path in reversed(slots.items())}
    for name, path in slots.items():
        if (bare := _bare(path)) != path:
            names.setdefault(bare, f"{{{name}_}}")
    return PATH.sub(lambda match: names.get(match.group(), match.group()), text)


def _fill(template: str, slots: dict[str, str]) -> str | None:
    """The template with what is open filled in; None where there is nothing to fill it with."""
    try:
        return _SLOT.sub(lambda match: _value(slots, match.group(1)), template)
    except KeyError:
        return None


def _value(slots: dict[str, str], name: str) -> str:
    path = slots[name.removesuffix("_")]
    return _bare(path) if name.endswith("_") else path


def _bare(path: str) -> str:
    """The name of a script without its ending, which is how modules and programs are called."""
    return re.sub(r"(?<=\w{4})\.(py|sh|c|cpp|rs|go)$", "", path)
