"""Files across many seals.

A workspace that is sealed after every step, until its layers are merged, holds what its twin holds that never was.
"""

from __future__ import annotations

import random

import pytest

from bunshin_gym.workspace import Workspace, WorkspaceSpec

STEPS = 40
LIST = (
    "{ cd /work && find . -printf '%P %y %m %s %l\\n' | grep -v ' d [0-9]* ' | sort; "
    "find . -type d -printf '%P %m\\n' | sort; find . -type f -exec sha256sum {} + | sort; } 2>/dev/null"
)


def random_step(rng: random.Random, number: int) -> str:
    names = ["a", "b", "c", "d/x", "d/y", "d/e/z", "f"]
    name, other = rng.choice(names), rng.choice(names)
    return rng.choice(
        [
            f"mkdir -p $(dirname {name}) && echo {number} > {name}",
            f"echo {number} >> {name}",
            f"rm -rf {name}",
            f"rm -rf {name.split('/')[0]}",
            f"mv {name} {other}",
            f"rm -rf {name}; mkdir -p {name}; echo {number} > {name}/inner",
            f"rm -rf {name}; ln -s target-{number} {name}",
            f"chmod {rng.choice(['700', '744', '755'])} {name}",
            f"cp -a {name} {other}",
            f"mkdir -p d/e && rm -rf d && mkdir d && touch d/new-{number}",
        ]
    )


@pytest.mark.parametrize("seed", range(3))
def test_many_layers_hold_what_one_holds(seed: int) -> None:
    rng = random.Random(seed)
    with Workspace(WorkspaceSpec()) as sealed, Workspace(WorkspaceSpec()) as twin:
        for number in range(STEPS):
            step = f"cd /work && {{ {random_step(rng, number)}; }} 2>/dev/null; true"
            assert sealed.run(step).output == twin.run(step).output
            sealed.snapshot().close()
        listing = twin.run(LIST).output
        assert sealed.run(LIST).output == listing
        (fork,) = sealed.fork(1)
        assert isinstance(fork, Workspace)
        with fork:
            assert fork.run(LIST).output == listing
