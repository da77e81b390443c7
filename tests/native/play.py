"""How victims are played: put into a workspace, started, forked while they wait, and then heard one by one."""

from __future__ import annotations

import errno
import functools
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bunshin_gym import ToolCall, Workspace, WorkspaceError
from bunshin_gym.engines import native_workspace

FOLDER = Path(__file__).parent / "victims"
HELPERS = ("victim.h", "victim.py", "inet.h", "blocked.h", "memory.h")
STAGE = "/work/victim"
PATIENCE = float(os.environ.get("BUNSHIN_PATIENCE", "1"))  # more on a machine that is emulated
READY_IN = 20.0 * PATIENCE  # seconds; setting up takes a fraction of one
OK_IN = 30.0 * PATIENCE
native_workspace.SEAL_TIMEOUT *= PATIENCE


@dataclass(frozen=True)
class Victim:
    name: str
    path: Path

    @property
    def in_python(self) -> bool:
        return self.path.suffix == ".py"

    @property
    def about(self) -> str:
        """What it checks: the sentence at its head."""
        lines = self.path.read_text().split("*/" if not self.in_python else '"""', 2)
        head = lines[1] if self.in_python else lines[0].removeprefix("/*")
        return " ".join(head.replace(" * ", " ").split())


def all_victims() -> list[Victim]:
    sources = (path for path in sorted(FOLDER.iterdir()) if path.suffix in (".c", ".py"))
    return [Victim(path.stem, path) for path in sources if path.name not in HELPERS]


@functools.cache
def _build_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="victims-")


def _target(victim: Victim) -> Path:
    """Where it is compiled to. BUNSHIN_VICTIMS names a folder of compiled ones, for machines that compile slowly."""
    return Path(os.environ.get("BUNSHIN_VICTIMS") or _build_folder().name) / victim.name


@functools.cache
def program(victim: Victim) -> bytes:
    """A victim as it is put into the workspace: compiled once a run, or as it is."""
    if victim.in_python:
        return victim.path.read_bytes()
    target = _target(victim)
    if target.exists() and target.stat().st_mtime >= victim.path.stat().st_mtime:
        return target.read_bytes()
    command = ["gcc", "-std=gnu17", "-O1", "-g0", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", str(target)]
    made = subprocess.run([*command, str(victim.path), "-lm", "-lrt"], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return target.read_bytes()


def start(workspace: Workspace, victim: Victim) -> str:
    """First act. Returns the victim's directory inside."""
    place = f"{STAGE}/{victim.name}"
    suffix = ".py" if victim.in_python else ""
    path = f"{STAGE}/bin/{victim.name}{suffix}"
    workspace.write_file(path, program(victim), mode=0o755)
    argv = path
    if victim.in_python:
        workspace.write_file(f"{STAGE}/bin/victim.py", (FOLDER / "victim.py").read_bytes())
        argv = f"/usr/bin/python3 {path}"
    script = (
        f"mkdir -p {place} && chmod 777 {place} && cd {place} && "
        f"export VICTIM={place} TMPDIR=/tmp PYTHONDONTWRITEBYTECODE=1 && "
        f"{{ exec {argv} </dev/null >{place}/output 2>&1 & }}"
    )
    result = workspace.call(ToolCall("exec", {"argv": ["bash", "-c", script]}), 30)
    assert result.exit_code == 0, result.output
    word = wait_for(workspace, f"{place}/ready", READY_IN, unless=f"{place}/result")
    assert word == "ready", f"{victim.name} does not get ready: {word or evidence(workspace, place)}"
    return place


def read(workspace: Workspace, path: str) -> str:
    """A whole line of a file, or "" while there is none."""
    try:
        text = workspace.read_file(path).decode(errors="replace")
    except WorkspaceError as error:
        if error.errno != errno.ENOENT:
            raise
        return ""
    return text.rstrip("\n") if text.endswith("\n") else ""


def wait_for(workspace: Workspace, path: str, seconds: float, unless: str = "") -> str:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if word := read(workspace, path) or (read(workspace, unless) if unless else ""):
            return word
        time.sleep(0.01)
    return ""


def evidence(workspace: Workspace, place: str) -> str:
    output = ""
    try:
        output = workspace.read_file(f"{place}/output").decode(errors="replace")[-500:]
    except WorkspaceError as error:
        output = str(error)
    alive = [f"{p.pid}({p.comm})<{p.ppid}" for p in workspace.processes()]
    return f"silent; processes {' '.join(alive)}; output {output!r}"


def say_go(workspace: Workspace, place: str, slack: float) -> None:
    workspace.write_file(f"{place}/go", f"{slack + PATIENCE - 1:.3f}\n".encode())


def verdict(workspace: Workspace, place: str, deadline: float) -> str:
    """Third act: "OK", or what is wrong."""
    while not (word := wait_for(workspace, f"{place}/result", min(1.0, max(deadline - time.monotonic(), 0.05)))):
        alone = all(process.comm == "bunshin-init" for process in workspace.processes())
        if alone or time.monotonic() >= deadline:
            word = read(workspace, f"{place}/result")
            break
    return word or f"no verdict within {OK_IN:.0f} s: {evidence(workspace, place)}"


def verdicts(stages: Sequence[tuple[str, Workspace]], place: str, slack: float) -> dict[str, str]:
    """All are told to go before one is heard, so that what leaks from one to another is seen."""
    for _, workspace in stages:
        say_go(workspace, place, slack)
    return hear(stages, place)


def hear(stages: Sequence[tuple[str, Workspace]], place: str) -> dict[str, str]:
    """What is wrong, by who says so; nothing where all is well."""
    deadline = time.monotonic() + OK_IN
    heard = {who: verdict(workspace, place, deadline) for who, workspace in stages}
    return {who: word for who, word in heard.items() if word != "OK"}


def one_fork(workspace: Workspace) -> Workspace:
    (child,) = workspace.fork(1)
    if isinstance(child, WorkspaceError):
        raise child
    return child


def scratch() -> Path:
    """A directory that every user may read, outside the tree."""
    folder = Path(tempfile.mkdtemp(prefix="victims-tree-"))
    os.chmod(folder, 0o755)
    return folder


if __name__ == "__main__":  # compiles all into BUNSHIN_VICTIMS
    for one in all_victims():
        program(one)
