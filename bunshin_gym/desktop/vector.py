"""DesktopVectorEnv: n desktops, forks of one prepared one, each with a worker of its own."""

from __future__ import annotations

from typing import Any, ClassVar

from gymnasium.vector.utils import concatenate, create_empty_array

from bunshin_gym.desktop.env import DesktopEnv
from bunshin_gym.env import WorkspaceEnv
from bunshin_gym.episode import Transition
from bunshin_gym.slot import Sent, Slot
from bunshin_gym.vector import BunshinVectorEnv

__all__ = ["DesktopVectorEnv"]


class DesktopVectorEnv(BunshinVectorEnv):
    """The vector environment of `bunshin/Desktop-v0`: observations are batched, `infos["text"]` holds what was said."""

    env_class: ClassVar[type[WorkspaceEnv]] = DesktopEnv
    caches: ClassVar[bool] = False

    def _finish(self, slot: Slot, sent: Sent) -> Transition:
        transition = super()._finish(slot, sent)
        if "text" not in transition.info:  # the environment failed: what it showed last, and why
            assert isinstance(slot.env, DesktopEnv)
            transition = slot.env.see(transition)
            slot.observation = transition.observation
        return transition

    def _batch(self, observations: list[Any]) -> Any:
        space = self.single_observation_space
        empty: Any = create_empty_array(space, len(observations))
        return concatenate(space, observations, empty)
