"""The plan from which pid 1 of a workspace sets itself up: records that native/src/init/settings.c does in order."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from bunshin_gym._native import encode_records
from bunshin_gym.engines.native_features import cgroup_support
from bunshin_gym.engines.native_frozen import frozen_environment, frozen_records
from bunshin_gym.engines.native_layers import Layer
from bunshin_gym.image import MountPoint
from bunshin_gym.workspace import WorkspaceSpec, parse_size

__all__ = ["make_plan"]

_CAPABILITIES = {
    "none": 0,
    # Docker's default set: what set-up commands such as apt-get expect of root.
    "container": sum(1 << number for number in (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31)),
    "all": (1 << 41) - 1,
}

_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "USER": "root",
    "LOGNAME": "root",
    "SHELL": "/bin/bash",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    # A pager or an editor that waits for a person would wait for ever.
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "EDITOR": "true",
    "VISUAL": "true",
    "GIT_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
}


def make_plan(
    spec: WorkspaceSpec, mounts: Sequence[MountPoint], upper: Layer, sealed: Sequence[Layer], root_directory: Path
) -> bytes:
    """The plan of a workspace that writes into `upper`, above `sealed` layers (newest first).

    `root_directory` is an empty directory on which the new root is put together before it becomes the root.
    """
    root = str(root_directory)
    records: list[Sequence[str]] = [("unshare", spec.network)]
    records += _mounts(mounts, upper, sealed, root)
    records += [("upper", str(upper.path)), ("devices", f"{root}/dev"), ("proc", f"{root}/proc")]
    for name in ("sys", "irq", "bus", "fs"):
        records.append(("bind", f"{root}/proc/{name}", f"{root}/proc/{name}", "ro,nosuid,nodev,noexec"))
    for name in ("kcore", "keys", "sysrq-trigger", "timer_list", "latency_stats", "acpi", "scsi"):
        records.append(("mask", f"{root}/proc/{name}"))
    records += [("sysfs", f"{root}/sys"), ("mask", f"{root}/sys/firmware"), ("mask", f"{root}/sys/kernel")]
    if spec.network == "host" and os.path.exists("/etc/resolv.conf"):
        records.append(("copy", "/etc/resolv.conf", f"{root}/etc/resolv.conf"))
    records += [
        ("mkdir", f"{root}/run"),
        ("mkdir", f"{root}/run/bunshin"),
        # Not writable to anyone but pid 1, who may do anything: `rm -rf /run` must not cut off the sessions.
        ("tmpfs", f"{root}/run/bunshin", "mode=511,size=64m"),
        *frozen_records(spec, f"{root}/run/bunshin"),
        ("pivot", root),
        ("hostname", spec.hostname),
        ("loopback",),
        ("mkdir", spec.cwd),
        ("cwd", spec.cwd),
    ]
    environment = {**_ENVIRONMENT, "PWD": spec.cwd, "BUNSHIN": "1", **spec.env}
    environment |= frozen_environment(spec)
    records += [("env", f"{name}={value}") for name, value in environment.items()]
    records.append(("capabilities", f"{_CAPABILITIES[spec.capabilities]:x}"))
    records += _limits(spec)
    return encode_records(records)


def _mounts(mounts: Sequence[MountPoint], upper: Layer, sealed: Sequence[Layer], root: str) -> list[Sequence[str]]:
    records: list[Sequence[str]] = []
    for point in mounts:
        target = root + point.path.rstrip("/")
        if point.writable:
            parts = [part for layer in sealed if (part := layer.part(point.key))]
            for part in (str(upper.path / point.key), *parts):
                records.append(("layer", part, point.path.rstrip("/") + "/"))
            records += [("base", lower, point.path.rstrip("/") + "/") for lower in point.lowers]
            upper_part = str(upper.path / point.key)
            records.append(("overlay", target, upper_part, f"{upper_part}.work", *parts, *point.lowers))
        elif len(point.lowers) > 1:
            records.append(("overlay", target, "", "", *point.lowers))
        else:
            records.append(("bind", point.lowers[0], target, "rec,ro,nosuid,nodev"))
    return records


def _limits(spec: WorkspaceSpec) -> list[Sequence[str]]:
    records: list[Sequence[str]] = []
    memory, disk = parse_size(spec.memory_limit), parse_size(spec.disk_limit)
    if memory is not None:
        here = cgroup_support("memory") != "none"
        records.append(("cgroup-memory" if here else "memory-poll", str(memory)))
    if spec.pids_limit is not None:
        if cgroup_support("pids") != "none":
            # One more for the workspace's own pid 1.
            records.append(("cgroup-pids", str(spec.pids_limit + 1)))
        else:
            records += [("rlimit", "6", str(spec.pids_limit + 1)), ("pids-poll", str(spec.pids_limit))]
    if disk is not None:
        records += [("disk-limit", str(disk)), ("rlimit", "1", str(disk))]
    return records
