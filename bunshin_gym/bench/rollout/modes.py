"""The ways a batch is played: two baselines, the default (also with its start-up hidden), one technique changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bunshin_gym.errors import TaskError
from bunshin_gym.executor import Executor

__all__ = ["ABLATIONS", "ALONE", "COLD", "OURS", "READY", "WARM", "Mode", "by_name"]


@dataclass(frozen=True)
class Mode:
    """One way. `options` go to the Executor. `warm`: every rollout is begun before the clock starts."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    warm: bool = False

    def executor(self, group: int, **more: Any) -> Executor:
        """An executor of this mode. `more`: further options, unless the mode has them itself."""
        return Executor(**{"group": group, **more, **self.options})


COLD = Mode("cold", {"cache": False, "share": False})
WARM = Mode("warm pool", {"cache": False, "share": False}, warm=True)
OURS = Mode("bunshin")
ALONE = Mode("alone", {"audit": 0.0})  # one rollout after another: what each call takes where nothing else runs
# As a trainer has it that prepares the templates of its next tasks ahead (`prepare_ahead`): compares with a warm pool.
READY = Mode("template ready", warm=True)
ABLATIONS = (
    READY,
    Mode("without cache", {"cache": False}),
    Mode("without sharing", {"share": False}),
    Mode("key=history", {"key": "history"}),
    Mode("key=state", {"key": "state"}),
    Mode("with drafts", {"speculate": 2}),
)


def by_name(names: str) -> tuple[Mode, ...]:
    """Modes of these names, comma-separated. Raises TaskError."""
    every = {mode.name: mode for mode in (COLD, WARM, OURS, *ABLATIONS)}
    chosen = [name.strip() for name in names.split(",")]
    for name in chosen:
        if name not in every:
            raise TaskError(f"there is no mode {name!r}; there are {', '.join(every)}")
    return tuple(every[name] for name in chosen)
