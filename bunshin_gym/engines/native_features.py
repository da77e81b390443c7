"""What the native engine finds on this machine, in the words `bunshin doctor` shows."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from typing import Any

from bunshin_gym._native.library import init_path

__all__ = ["cgroup_support", "describe"]

_NEEDED = ("user-namespaces", "overlayfs-in-user-namespace", "kcmp", "pidfd-getfd", "checkpoint-restore")


@cache
def cgroup_support(controller: str) -> str:
    """ "v2", "v1" or "none": whether limits can be set through this controller, found by trying."""
    probe = subprocess.run([init_path(), "probe", controller], capture_output=True, text=True, check=False)
    return probe.stdout.strip() or "none"


def describe(found: dict[str, str]) -> dict[str, Any]:
    """The library's findings, what each limit rests on, and whether the engine works here."""
    memory, pids = cgroup_support("memory"), cgroup_support("pids")
    missing = [name for name in _NEEDED if found.get(name) != "yes"]
    return {
        **found,
        "user": "root" if os.geteuid() == 0 else "ordinary",
        "memory-limit": f"cgroup {memory}" if memory != "none" else "polling",
        "pids-limit": f"cgroup {pids}" if pids != "none" else "rlimit and polling",
        "disk-limit": "file size limit and polling",
        "native-works": "yes" if not missing else "no",
        "native-missing": ", ".join(missing),
    }
