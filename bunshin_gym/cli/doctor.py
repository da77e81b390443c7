"""doctor: what this machine can do, and how to get what is missing."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bunshin_gym import engines
from bunshin_gym.cli.terminal import table
from bunshin_gym.errors import BunshinError, WorkspaceError
from bunshin_gym.workspace import Workspace

__all__ = ["arguments", "main"]

DEFAULT_ENGINE = "native"


@dataclass(frozen=True)
class Advice:
    """What a feature is for, and how to get it where it is missing."""

    purpose: str
    remedy: str


ADVICE: dict[str, Advice] = {
    "user-namespaces": Advice(
        "isolation without root",
        "sysctl user.max_user_namespaces above 0, kernel.unprivileged_userns_clone=1, "
        "kernel.apparmor_restrict_unprivileged_userns=0; in Docker: --security-opt seccomp=unconfined",
    ),
    "overlayfs-in-user-namespace": Advice("the root file system of a workspace", "a kernel of 5.11 or newer"),
    "overlayfs-lowerdir-one-by-one": Advice("many layers", "a kernel of 6.5 or newer; without it, fewer layers"),
    "pagemap-scan": Advice("finding written pages fast", "a kernel of 6.7 or newer; without it, forks take longer"),
    "kcmp": Advice(
        "telling which descriptors are shared", "a kernel with CONFIG_KCMP, a seccomp profile that allows it"
    ),
    "pidfd-getfd": Advice("taking descriptors along", "a kernel of 5.6 or newer, a seccomp profile that allows it"),
    "checkpoint-restore": Advice("rebuilding processes", "a kernel with CONFIG_CHECKPOINT_RESTORE"),
    "time-namespaces": Advice("clocks of its own for a fork", "a kernel of 5.6 or newer with CONFIG_TIME_NS"),
    "memory-limit": Advice(
        "what memory_limit rests on", "writable cgroups: root, or systemd-run --user --scope -p Delegate=yes"
    ),
    "pids-limit": Advice("what pids_limit rests on", "as for memory-limit"),
    "disk-limit": Advice("what disk_limit rests on", ""),
}

# Programs that some part of the package wants, beyond those the engine needs.
PROGRAMS: dict[str, Advice] = {
    "bash": Advice("the shell of a workspace", "apt-get install bash"),
    "python3": Advice("the python tool in the host image", "apt-get install python3"),
    "gcc": Advice("the task broken_makefile, building from source", "apt-get install gcc libc6-dev"),
    "make": Advice("the task broken_makefile, building from source", "apt-get install make"),
    "debootstrap": Advice("replaying recordings (bunshin run --tasks)", "apt-get install debootstrap"),
    "runc": Advice("the comparison in bunshin bench fork", "apt-get install runc"),
    "criu": Advice("the comparison in bunshin bench fork", "the package criu, or a build of it"),
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")


def main(args: argparse.Namespace) -> int:
    found = engines.features()
    trouble = try_engine(DEFAULT_ENGINE)
    if args.json:
        programs = {name: shutil.which(name) or "" for name in PROGRAMS}
        print(json.dumps({**found, "programs": programs, "default-engine-trouble": trouble}, indent=2))
    else:
        show(found, trouble)
    return 1 if trouble else 0


def try_engine(name: str) -> str:
    """Why the engine does not work here; empty when it does. Found by using it: start, call, fork, call."""
    try:
        with Workspace(engine=name) as workspace:
            if not workspace.run("here=1", timeout=30).ok:
                return "a workspace starts, but its shell does not answer"
            (child,) = workspace.fork(1)
            if isinstance(child, WorkspaceError):
                raise child
            with child:
                if child.run('echo "$here"', timeout=30).output.strip() != "1":
                    return "a workspace forks, but its fork has lost the shell's state"
    except BunshinError as error:
        return str(error)
    return ""


def show(found: Mapping[str, Any], trouble: str) -> None:
    print(f"kernel {found.get('kernel', '?')}, {found.get('architecture', '?')}, {found.get('user', '?')} user\n")
    rows = [
        (name, "loads" if not why else "cannot be loaded", "an engine", why) for name, why in found["engines"].items()
    ]
    for name, value in found.items():
        if name in ADVICE:
            advice = ADVICE[name]
            lacking = value == "no" or "polling" in str(value)
            rows.append((name, str(value), advice.purpose, advice.remedy if lacking else ""))
    for name, advice in PROGRAMS.items():
        there = shutil.which(name)
        rows.append((name, there or "missing", advice.purpose, "" if there else advice.remedy))
    print(table(("", "found", "for", "how to get it"), rows, left=(0, 1, 2, 3)))
    print()
    if trouble:
        print(f"The default engine ({DEFAULT_ENGINE}) does not work here: {trouble}")
    else:
        print(f"The default engine ({DEFAULT_ENGINE}) works: a workspace started, answered and was forked.")
