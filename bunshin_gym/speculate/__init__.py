"""Speculation: likely next calls, made ahead of time in forks."""

from __future__ import annotations

from bunshin_gym.speculate.callback import Callback, Predict
from bunshin_gym.speculate.drafts import Drafts
from bunshin_gym.speculate.ready import mixed, ready
from bunshin_gym.speculate.seam import Draft, NullSpeculator, Speculator

__all__ = ["Callback", "Draft", "Drafts", "NullSpeculator", "Predict", "Speculator", "mixed", "ready"]
