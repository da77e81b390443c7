"""What is played: groups of rollouts, each with its calls and the seconds of thinking before each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from bunshin_gym.tools import ToolCall
from bunshin_gym.workspace import Workspace

__all__ = ["Batch", "Lot"]


@dataclass(frozen=True)
class Lot:
    """The rollouts of one task. `thinking` is in seconds, one before each call."""

    task: str
    names: tuple[str, ...]
    scripts: tuple[tuple[ToolCall, ...], ...]
    thinking: tuple[tuple[float, ...], ...]
    prepare: Callable[[], Workspace]
    timeout: float
    verifier: Callable[[Workspace], float] | None = None

    @property
    def calls(self) -> int:
        return sum(map(len, self.scripts))

    def faster(self, scale: float) -> Lot:
        """The same with thinking times `scale` times as long."""
        return replace(self, thinking=tuple(tuple(scale * t for t in row) for row in self.thinking))


@dataclass(frozen=True)
class Batch:
    """What a training step plays at once.

    `about` says what it is made of, for whoever reads the figures. `busy`: its calls keep a processor busy while they
    run, so that more of them at a time than there are processors slow each other down.
    """

    name: str
    lots: tuple[Lot, ...]
    about: tuple[str, ...] = ()
    busy: bool = False

    @property
    def rollouts(self) -> int:
        return sum(len(lot.scripts) for lot in self.lots)

    @property
    def calls(self) -> int:
        return sum(lot.calls for lot in self.lots)

    @property
    def thinking(self) -> float:
        """The longest time any rollout thinks: no batch can be quicker."""
        return max((sum(row) for lot in self.lots for row in lot.thinking), default=0.0)

    def faster(self, scale: float) -> Batch:
        """The same with thinking times `scale` times as long."""
        return replace(self, lots=tuple(lot.faster(scale) for lot in self.lots))
