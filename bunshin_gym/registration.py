"""The environment ids. Entry points are strings: a callable could not be written to JSON."""

from __future__ import annotations

from gymnasium.envs.registration import register, registry

__all__ = ["register_all"]

_IDS = {
    "bunshin/Shell-v0": ("bunshin_gym.env:ShellEnv", "bunshin_gym.vector:BunshinVectorEnv"),
    "bunshin/Tools-v0": ("bunshin_gym.env:ToolsEnv", "bunshin_gym.vector:ToolsVectorEnv"),
    "bunshin/Desktop-v0": ("bunshin_gym.desktop.env:DesktopEnv", "bunshin_gym.desktop.vector:DesktopVectorEnv"),
}


def register_all() -> None:
    """Register every id that is not registered yet."""
    for name, (single, vector) in _IDS.items():
        if name not in registry:
            register(id=name, entry_point=single, vector_entry_point=vector)
