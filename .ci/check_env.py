"""Runs Gymnasium's own checker on every environment of the installed package, in every render mode.

usage: check_env.py GYMNASIUM_VERSION, from a folder outside the source tree.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import gymnasium as gym
from gymnasium.utils.env_checker import check_env

import bunshin_gym

IDS = ("bunshin/Shell-v0", "bunshin/Tools-v0", "bunshin/Desktop-v0")


def main() -> None:
    if gym.__version__ != sys.argv[1]:
        sys.exit(f"wanted gymnasium {sys.argv[1]}, got {gym.__version__}")
    if "site-packages" not in Path(bunshin_gym.__file__).parts:
        sys.exit(f"tests the source tree, not the installed package: {bunshin_gym.__file__}")
    for name in IDS:
        env = gym.make(name)
        try:
            check_env(env.unwrapped)
        except bunshin_gym.EngineUnavailable as error:
            if os.environ.get("BUNSHIN_REQUIRE_ENGINES") == "1":
                raise
            print(f"gymnasium {gym.__version__}: {name} is left out: {error}")
            continue
        finally:
            env.close()
        json = gym.spec(name).to_json()
        if gym.envs.registration.EnvSpec.from_json(json) != gym.spec(name):
            sys.exit(f"{name}: the spec does not survive a round trip through JSON")
        print(f"gymnasium {gym.__version__}: {name} passes check_env")


if __name__ == "__main__":
    main()
