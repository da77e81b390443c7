"""Helpers of the field tests: what runs in a workspace, and which process of the machine its pid 1 is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import residue
from bunshin_gym import ToolCall, ToolResult, Workspace


def execute(workspace: Workspace, *argv: str, timeout: float = 60, **args: object) -> ToolResult:
    return workspace.call(ToolCall("exec", {"argv": list(argv), **args}), timeout)


def python(workspace: Workspace, code: str, timeout: float = 60) -> ToolResult:
    return workspace.call(ToolCall("python", {"code": code}), timeout)


def running(workspace: Workspace) -> list[str]:
    """The command lines of all living processes but pid 1 and the sessions, by the word of the kernel."""
    # A zombie has an empty command line.
    code = """
import glob, os
for path in glob.glob("/proc/[0-9]*/cmdline"):
    try: words = open(path, errors="replace").read().split("\\0")
    except OSError: continue
    if path != f"/proc/{os.getpid()}/cmdline": print(" ".join(words).strip().replace("\\n", " "))
"""
    lines = execute(workspace, "python3", "-c", code).output.splitlines()
    assert "bunshin-init" in lines, lines  # pid 1 itself: the look has worked
    lines.remove("bunshin-init")
    return [line for line in lines if line and "/run/bunshin/" not in line]


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
