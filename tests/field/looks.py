"""Helpers of the field tests: what runs in a workspace, and which process of the machine its pid 1 is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import residue
from bunshin_gym import ToolCall, ToolResult, Workspace

SESSIONS = {"bunshin-init", "bash", "python3"}


def execute(workspace: Workspace, *argv: str, timeout: float = 60, **args: object) -> ToolResult:
    return workspace.call(ToolCall("exec", {"argv": list(argv), **args}), timeout)


def python(workspace: Workspace, code: str, timeout: float = 60) -> ToolResult:
    return workspace.call(ToolCall("python", {"code": code}), timeout)


def running(workspace: Workspace) -> list[str]:
    """The commands of all living processes but pid 1 and the shell it started, by the word of the kernel."""
    script = (
        "for p in /proc/[0-9]*; do"
        " read -r _ _ state parent _ < $p/stat 2>/dev/null || continue;"
        " [ $state = Z ] || [ ${p#/proc/} = 1 ] || [ ${p#/proc/} = $$ ] || tr '\\0' ' ' < $p/cmdline 2>/dev/null && echo;"
        " done"
    )
    result = execute(workspace, "bash", "-c", script)
    return [
        line for line in result.output.splitlines() if line and "/run/bunshin/" not in line and "tr \\0" not in line
    ]


def comms(workspace: Workspace) -> list[str]:
    """The names of all processes but pid 1, zombies included."""
    return [process.comm for process in workspace.processes() if process.pid != 1]


def until(condition: Callable[[], bool], patience: float = 30) -> bool:
    """Whether the condition comes true before patience ends."""
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def first_processes() -> set[int]:
    """The pids, on this machine, of the first processes of all workspaces of this program."""
    table = {process.pid: process for process in residue.processes()}
    keepers = {
        pid for pid, process in table.items() if process.ppid == os.getpid() and process.comm == "bunshin-keeper"
    }
    return {pid for pid, process in table.items() if process.ppid in keepers and process.comm == "bunshin-init"}


def host_pid(make: Callable[[], Workspace]) -> tuple[Workspace, int]:
    """A new workspace, and the pid of its first process on this machine."""
    before = first_processes()
    workspace = make()
    (pid,) = first_processes() - before
    return workspace, pid


def status(pid: int, field: str) -> str:
    """A field of /proc/PID/status, e.g. VmHWM."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return value.strip()
    return ""


def megabytes(pid: int) -> float:
    """The most memory a process has ever held."""
    return int(status(pid, "VmHWM").split()[0]) / 1024
