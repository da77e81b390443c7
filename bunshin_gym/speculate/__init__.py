"""Speculation: likely next calls, made ahead of time in forks."""

from __future__ import annotations

from bunshin_gym.speculate.seam import Draft, NullSpeculator, Speculator

__all__ = ["Draft", "NullSpeculator", "Speculator"]
