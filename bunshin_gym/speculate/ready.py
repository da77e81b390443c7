"""The predictors that are there: each alone, and the mix of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bunshin_gym.speculate.callback import Written
from bunshin_gym.speculate.learned import Learned
from bunshin_gym.speculate.patterns import Patterns
from bunshin_gym.speculate.predict import Source
from bunshin_gym.speculate.retry import Retry
from bunshin_gym.speculate.siblings import Siblings

__all__ = ["PREDICTORS", "mixed"]

PREDICTORS: Mapping[str, Callable[[], Source]] = {"siblings": Siblings, "patterns": Patterns, "retry": Retry}


def mixed(*more: Source) -> Learned:
    """All of them, and `more`, weighed against each other by what came."""
    return Learned("mix", [*(make() for make in PREDICTORS.values()), Written(), *more])
