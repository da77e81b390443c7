"""How programs are played: set up in a workspace, forked three ways in the middle of work, and then let go apart.

Five workspaces go on from one instant: the source, three children, and a child of the first child. Each is given work
of its own, all at the same time, and each is asked for its own result: whatever leaked from one to another would show.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from bunshin_gym import Image, ToolCall, UnsupportedResource, Workspace, WorkspaceError, WorkspaceSpec
from bunshin_gym.workspace import MemoryUsage

SOURCES = Path(__file__).parent / "sources"
PATIENCE = 30.0  # seconds for what takes a fraction of one on an idle machine
T = TypeVar("T")


@dataclass(frozen=True)
class Row:
    """What became of one program: a line of docs/programs.md."""

    program: str
    doing: str
    outcome: str
    processes: int = 0
    threads: int = 0
    snapshot_ms: float = 0.0
    fork_ms: float = 0.0
    shared: int = 0  # bytes
    private: int = 0


@dataclass(frozen=True)
class Branch:
    """One workspace with the program in it. `number` tells it from its siblings, so its work can differ from theirs."""

    name: str
    number: int
    workspace: Workspace

    def sh(self, command: str, timeout: float = PATIENCE) -> str:
        """Output of a shell command that must succeed."""
        result = self.workspace.run(command, timeout)
        assert result.exit_code == 0, f"{self.name}: {command[:300]}: {result.exit_reason} {result.output[-3000:]}"
        return result.output

    def py(self, code: str, timeout: float = PATIENCE) -> str:
        """Output of code that must run through, in the persistent interpreter."""
        result = self.workspace.call(ToolCall("python", {"code": code}), timeout)
        assert result.exit_code == 0, f"{self.name}: {code[:300]}: {result.exit_reason} {result.output[-3000:]}"
        return result.output

    def start(self, command: str) -> None:
        """Start a program that lives on by itself, outside the shell's jobs."""
        script = f"{{ exec setsid {command} ; }} </dev/null >/work/{self._log(command)} 2>&1 &"
        result = self.workspace.call(ToolCall("exec", {"argv": ["bash", "-c", script]}), PATIENCE)
        assert result.exit_code == 0, f"{self.name}: {command}: {result.output}"

    @staticmethod
    def _log(command: str) -> str:
        return re.sub(r"[^\w.]+", "-", Path(command.split()[0]).name) + ".log"

    def until(self, command: str, expected: str | None = None, patience: float = PATIENCE) -> str:
        """Ask until the command succeeds (and its output is as expected); its output."""
        deadline = time.monotonic() + patience
        while True:
            result = self.workspace.run(command, PATIENCE)
            if result.exit_code == 0 and (expected is None or re.search(expected, result.output)):
                return result.output
            if time.monotonic() > deadline:
                logs = self.workspace.run(
                    "tail -n 5 /work/*.log; ps -ef --forest 2>/dev/null | tail -30", PATIENCE
                ).output
                raise AssertionError(
                    f"{self.name}: `{command[:300]}` never gave {expected!r}, but {result.exit_code} "
                    f"{result.output[-1500:]!r}\n{logs[-3000:]}"
                )
            time.sleep(0.02)

    def put(self, path: str, text: str | bytes, mode: int | None = None) -> None:
        self.workspace.write_file(path, text.encode() if isinstance(text, str) else text, mode)

    def get(self, path: str) -> str:
        return self.workspace.read_file(path).decode()


@dataclass
class Scene:
    """The workspaces of one test, and what is to be told of them. Use it through the fixture of its name."""

    rows: list[Row]
    open_ones: ExitStack = field(default_factory=ExitStack)

    def source(self, **spec: Any) -> Branch:
        """A workspace in which the packages of this interpreter can be imported."""
        packages = str(Path(pytest.__file__).resolve().parents[1])
        env = {"PYTHONPATH": packages, "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/root", "TERM": "xterm"}
        spec = {"image": Image.host(expose=[packages]), "call_timeout": PATIENCE, "env": env} | spec
        workspace = self.open_ones.enter_context(Workspace(WorkspaceSpec(**spec)))
        return Branch("source", 0, workspace)

    def fork(self, source: Branch, version: str, doing: str) -> list[Branch]:
        """Source, three children, and a child of the first. `version`: a command whose first line names the program."""
        program = source.sh(version).strip().splitlines()[0]
        begun = time.monotonic()
        with source.workspace.snapshot() as snapshot:
            sealed = time.monotonic()
            children = [self._keep(child) for child in snapshot.fork(3)]
            done = time.monotonic()
            report, shared = snapshot.report, snapshot.size
        use: MemoryUsage = children[-1].memory()
        (grandchild,) = (self._keep(child) for child in children[0].fork(1))
        row = Row(
            program, doing, "kept", report.processes, report.threads,
            (sealed - begun) * 1e3, (done - sealed) * 1e3 / 3, shared, use.private,
        )  # fmt: skip
        self.rows.append(row)
        names = ["first child", "second child", "third child", "grandchild"]
        others = [Branch(name, n, w) for n, (name, w) in enumerate(zip(names, [*children, grandchild], strict=True), 1)]
        return [source, *others]

    def refused(self, source: Branch, version: str, doing: str, reason: str) -> None:
        """The program is refused by name; the source is then to be checked by the test."""
        program = source.sh(version).strip().splitlines()[0]
        with pytest.raises(UnsupportedResource) as caught:
            source.workspace.snapshot()
        assert reason in str(caught.value), caught.value
        self.rows.append(Row(program, doing, f"refused by name: {reason}"))

    def _keep(self, child: Workspace | WorkspaceError) -> Workspace:
        if isinstance(child, WorkspaceError):
            raise child
        return self.open_ones.enter_context(child)


def together(branches: list[Branch], act: Callable[[Branch], T]) -> list[T]:
    """Act in all branches at the same time; the results in their order. A failure names its branch."""
    with ThreadPoolExecutor(len(branches)) as pool:
        return list(pool.map(act, branches))


_built = tempfile.TemporaryDirectory(prefix="programs-")


def build_folder() -> Path:
    """Where programs are compiled, once a run."""
    return Path(_built.name)


def scenes(rows: list[Row], known_failure: str) -> Iterator[Scene]:
    """One scene, closed after its test. Where the test is known to fail, its rows say so."""
    scene = Scene([])
    try:
        yield scene
    finally:
        scene.open_ones.close()
    rows += [replace(row, outcome=f"**not kept**: {known_failure}") if known_failure else row for row in scene.rows]


def table(rows: list[Row]) -> str:
    """docs/programs.md."""
    lines = [
        "# Programs that were forked while they worked",
        "",
        "Written by `scripts/programs table` from `tests/programs`: each program is forked three ways in the middle",
        "of work, a child once more, and all five workspaces go on apart to results that are checked. *snapshot* is",
        "the time until the source runs on, *fork* that of one of three children, *private* the memory that a child",
        "has for itself right after its birth, *shared* what all forks have in common of the memory that was sealed.",
        "Single readings from a shared machine of two cores, the load of the programs included.",
        "",
        "| program | going on at the fork | outcome | processes / threads | snapshot ms | fork ms | private MB "
        "| shared MB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: row.program.lower()):
        cells = [row.program, row.doing, row.outcome]
        if row.processes:
            sizes = [f"{row.private / 1e6:.1f}", f"{row.shared / 1e6:.1f}"]
            cells += [f"{row.processes} / {row.threads}", f"{row.snapshot_ms:.0f}", f"{row.fork_ms:.0f}", *sizes]
        else:
            cells += [""] * 5
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"
