"""What is ready to be used: the predictors that are there, the mix of them, and a speculator that goes by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bunshin_gym.materialise import Materialiser
from bunshin_gym.speculate.callback import Callback, Predict, Written
from bunshin_gym.speculate.drafts import Drafts
from bunshin_gym.speculate.learned import Learned
from bunshin_gym.speculate.patterns import Patterns
from bunshin_gym.speculate.predict import Source
from bunshin_gym.speculate.retry import Retry
from bunshin_gym.speculate.seam import NullSpeculator, Speculator
from bunshin_gym.speculate.siblings import Siblings
from bunshin_gym.stats import Stats
from bunshin_gym.tree import Tree

__all__ = ["PREDICTORS", "mixed", "ready"]

PREDICTORS: Mapping[str, Callable[[], Source]] = {"siblings": Siblings, "patterns": Patterns, "retry": Retry}


def mixed(*more: Source) -> Learned:
    """All of them, and `more`, weighed against each other by what came."""
    return Learned("mix", [*(make() for make in PREDICTORS.values()), Written(), *more])


def ready(places: int, predict: Predict | None, materialiser: Materialiser, tree: Tree, stats: Stats) -> Speculator:
    """A speculator for up to `places` drafts at a time (0: one that never guesses), that also goes by `predict`."""
    if not places:
        return NullSpeculator()
    mix = mixed() if predict is None else mixed(Callback(predict))
    return Drafts(places, mix, materialiser, tree, stats)
