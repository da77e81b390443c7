"""A user's own predictor, and what the policy has written already: calls that are named by somebody who should know."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from bunshin_gym.errors import InvalidToolCall
from bunshin_gym.speculate.learned import START
from bunshin_gym.speculate.past import Made, Past, Said
from bunshin_gym.speculate.predict import Hint
from bunshin_gym.tools import ToolCall

__all__ = ["Callback", "Predict", "Written"]

Predict = Callable[[Sequence[Made], str], Iterable[tuple[ToolCall | str, float]]]
"""`predict(history, partial_text)`: calls (or commands of the shell) that may come next, with probabilities.

`history` holds (call, result) pairs in order, `partial_text` what was given to `hint` since the last of them.
"""

_log = logging.getLogger("bunshin_gym")
_BLOCK = re.compile(r"```(?:bash|sh|shell|console)?[ \t]*\n(.*?)\n?```", re.DOTALL)
_NAMED = 3


class Callback:
    """The calls a user's function names. Its probabilities are taken as they are until what came says otherwise.

    One that raises is asked no more; what is no probability is left out.
    """

    name = "callback"
    prior: Mapping[str, float] = {"callback": -START, "callback says": 1.0}

    def __init__(self, predict: Predict) -> None:
        self._predict: Predict | None = predict

    def hints(self, past: Past) -> list[Hint]:
        if self._predict is None:
            return []
        try:
            named = [(_call(call), float(chance)) for call, chance in self._predict(past.made, past.text)]
        except Exception:
            self._predict = None
            _log.exception("the callback that predicts calls has failed, and is not asked again")
            return []
        found = []
        for call, chance in named:
            if 0 < chance <= 1:
                chance = min(max(chance, 1e-3), 1 - 1e-3)
                found.append(Hint(call, {"callback": 1.0, "callback says": math.log(chance / (1 - chance))}))
        return found

    def learn(self, past: Past, call: ToolCall) -> None:
        return None


class Written:
    """The calls that stand complete in the policy's partial text: a code block that is closed, or a JSON object."""

    name = "written"
    prior: Mapping[str, float] = {"written": 4.0}

    def hints(self, past: Past) -> list[Hint]:
        if not past.text:
            return []
        like = past.like()
        found = []
        for block in _BLOCK.findall(past.text)[-_NAMED:]:
            call = ToolCall("shell", {"command": block})
            found.append(call if like is None else Said("", block, None).spoken(like))
        try:
            named = json.loads(past.text[past.text.index("{") :])
            found.append(ToolCall(named["tool"], named["args"]))
            found[-1].key()
        except (ValueError, KeyError, TypeError, InvalidToolCall):
            pass  # it is not complete, or is something else
        return [Hint(call, {"written": 1.0}) for call in found]

    def learn(self, past: Past, call: ToolCall) -> None:
        return None


def _call(named: ToolCall | str) -> ToolCall:
    call = ToolCall("shell", {"command": named}) if isinstance(named, str) else named
    call.key()  # raises where it is none
    return call
