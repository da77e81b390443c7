"""How the shipped verifiers look into a workspace without believing it.

The policy owned the workspace: it may have changed any file, shell function, environment variable or interpreter in
it. So nothing in the workspace judges. Deliverables are read out and compared here; code is run there in fresh
processes with a clean environment, on inputs the policy has not seen, and what it answers is compared here too.
Nothing a workspace holds can raise in a verifier: what cannot be read or run is None.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bunshin_gym.errors import BunshinError
from bunshin_gym.tools import ExitReason, ToolCall
from bunshin_gym.workspace import Workspace

PYTHON = "/usr/bin/python3"
CLEAN_ENV = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/nonexistent",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
}


def tree(folder: Path, target: str) -> dict[str, bytes]:
    """The files below `folder` as a task's `files`, placed below `target` in the workspace."""
    return {
        f"{target}/{path.relative_to(folder).as_posix()}": path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def read(ws: Workspace, path: str) -> bytes | None:
    """The content of a regular file; None where there is none."""
    try:
        return ws.read_file(path)
    except (BunshinError, OSError):
        return None


def read_text(ws: Workspace, path: str) -> str | None:
    """The same as text, with Unix line ends and no byte order mark; None where it is no UTF-8."""
    data = read(ws, path)
    try:
        return None if data is None else data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        return None


def unchanged(ws: Workspace, files: Mapping[str, bytes]) -> bool:
    """Whether every one of these files still has its given content."""
    return all(read(ws, path) == content for path, content in files.items())


def execute(
    ws: Workspace,
    argv: Sequence[str],
    cwd: str = "/",
    env: Mapping[str, str] | None = None,
    timeout: float = 20.0,
) -> str | None:
    """The standard output of a fresh process that ended with 0 within `timeout` seconds; None otherwise."""
    call = ToolCall("exec", {"argv": list(argv), "cwd": cwd, "env": {**CLEAN_ENV, **(env or {})}})
    result = ws.call(call, timeout=timeout)
    if result.exit_reason is not ExitReason.EXITED or result.exit_code != 0 or result.truncated:
        return None
    return result.stdout.decode("utf-8", "replace")


def python(ws: Workspace, code: str, *args: str, cwd: str = "/", timeout: float = 20.0) -> Any:
    """The JSON value on the last line that `code` prints; None where it fails or prints none.

    The interpreter is isolated (-I -S): no variable, user site, sitecustomize or current directory leads its imports.
    """
    text = execute(ws, [PYTHON, "-I", "-S", "-B", "-c", code, *args], cwd=cwd, timeout=timeout)
    if text is None or not text.strip():
        return None
    try:
        return json.loads(text.strip().splitlines()[-1])
    except ValueError:
        return None
