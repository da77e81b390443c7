"""How native workspaces get a frozen clock and seeded randomness: what native/src/frozen/ holds is preloaded there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bunshin_gym._native import frozen_path
from bunshin_gym.frozen import check_seed, frozen_instant

if TYPE_CHECKING:
    from bunshin_gym.workspace import WorkspaceSpec

__all__ = ["frozen_environment", "frozen_records"]

_INSIDE = "/run/bunshin/frozen.so"


def frozen_records(spec: WorkspaceSpec, private: str) -> list[Sequence[str]]:
    """The plan's part: the library below `private` (before the root is entered), and what pid 1 is to tell it."""
    instant, seed = frozen_instant(spec.frozen_time), check_seed(spec.seed)
    if instant is None and seed is None:
        return []
    seconds, nanoseconds = map(str, instant) if instant is not None else ("", "")
    inside = f"{private}/{_INSIDE.rpartition('/')[2]}"
    return [
        ("copy", "/dev/null", inside),  # something to mount it on
        ("bind", frozen_path(), inside, "ro,nosuid,nodev"),
        ("frozen", seconds, nanoseconds, "" if seed is None else str(seed)),
    ]


def frozen_environment(spec: WorkspaceSpec) -> dict[str, str]:
    """Variables over those of the spec: the library, and what keeps programs from drawing randomness elsewhere."""
    if spec.frozen_time is None and spec.seed is None:
        return {}
    before = spec.env.get("LD_PRELOAD")
    # AddressSanitizer refuses to run in programs that something else is loaded into before it.
    sanitizer = ":".join(filter(None, ("verify_asan_link_order=0", spec.env.get("ASAN_OPTIONS"))))
    found = {"LD_PRELOAD": f"{_INSIDE}:{before}" if before else _INSIDE, "ASAN_OPTIONS": sanitizer}
    if spec.seed is not None:
        number = check_seed(spec.seed) or 0
        hashes = {"PYTHONHASHSEED": str(number % (1 << 32)), "PERL_HASH_SEED": f"{number:x}", "PERL_PERTURB_KEYS": "0"}
        found |= {name: value for name, value in hashes.items() if name not in spec.env}
    return found
