"""Recorded trajectories: which calls an agent made, what it saw, and how another run compares with that.

Two files of JSON lines. Tasks: how to prepare a root file system (`setup`), and how its calls run (`shell`, `cwd`,
`env`, `call_timeout_s`). Trajectories: rollouts of these tasks, call by call, with what was recorded and, in the fields
that begin with `replay_`, what an offline replay by others gave. A call's exit code is comparable where the recording
and that replay agree (or only the replay has one): elsewhere it depends on what no replay can bring back.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from bunshin_gym.errors import TaskError
from bunshin_gym.tools import ExitReason, ToolCall, ToolResult

__all__ = ["Comparison", "TraceCall", "TraceRollout", "TraceTask", "compare", "load", "similarity"]

TIMED_OUT = 124


@dataclass(frozen=True)
class TraceCall:
    """One call as recorded. Exit codes are None where there is none; a time-out counts as 124."""

    command: str
    output: str
    output_length: int  # characters there were; `output` may hold fewer
    recorded_code: int | None
    replay_code: int | None
    replay_similarity: float | None
    thinking: float | None  # seconds the policy took before it
    seconds: float = 0.0  # what the replay by others took
    read_only: bool = False  # whether it looks as if it changed nothing

    @property
    def code(self) -> int | None:
        """The exit code another run must give; None where the sources do not agree on one."""
        if self.recorded_code is None or self.recorded_code == self.replay_code:
            return self.replay_code
        return None


@dataclass(frozen=True)
class TraceRollout:
    """One rollout: its calls, in order."""

    name: str
    calls: tuple[TraceCall, ...]


@dataclass(frozen=True)
class TraceTask:
    """A task and its rollouts. `setup` runs as root, with network, each entry in a fresh `bash -c`."""

    name: str
    setup: tuple[str, ...]
    shell: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    timeout: float  # seconds a call may take
    plain: bool  # whether all calls are commands of the agent's, word for word
    rollouts: tuple[TraceRollout, ...]

    def call(self, call: TraceCall) -> ToolCall:
        """The tool call that makes a recorded call again: a fresh shell in exactly the recorded environment, with an
        open pipe that says nothing for its standard input."""
        variables = [f"{name}={value}" for name, value in {"HOME": "/root", **self.env}.items()]
        shell = ["/usr/bin/env", "-i", *variables, *self.shell]
        return ToolCall("exec", {"command": call.command, "shell": shell, "cwd": self.cwd, "stdin": "open"})


def load(tasks: Path, trajectories: Path, pattern: str = "") -> list[TraceTask]:
    """The tasks whose name matches `pattern` (a glob), or all plain ones where there is no pattern.

    Raises TaskError, naming file and line, for what is no such file.
    """
    rollouts: dict[str, list[TraceRollout]] = {}
    for where, record in _records(trajectories):
        with _sense(where):
            rollout = TraceRollout(record["rollout_id"], tuple(map(_call, record["calls"])))
            rollouts.setdefault(record["task_id"], []).append(rollout)
    found = []
    for where, record in _records(tasks):
        with _sense(where):
            task = TraceTask(
                name=record["task_id"],
                setup=tuple(record["setup"]),
                shell=tuple(record["shell"]),
                cwd=record["cwd"],
                env=dict(record["env"]),
                timeout=float(record["call_timeout_s"]),
                plain=bool(record["plain_bash"]),
                rollouts=tuple(rollouts.get(record["task_id"], ())),
            )
        if fnmatchcase(task.name, pattern) if pattern else task.plain:
            found.append(task)
    return found


def _records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    where = f"{path}, line {number}"
                    with _sense(where):
                        yield where, json.loads(line)
    except OSError as error:
        raise TaskError(f"cannot read {path}: {error.strerror}") from error


class _sense:
    """What does not make sense in a record becomes a TaskError with its place."""

    def __init__(self, where: str) -> None:
        self.where = where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> None:
        if isinstance(error, (KeyError, TypeError, ValueError)):
            raise TaskError(f"{self.where}: no such record: {type(error).__name__} {error}") from error


def _call(record: Mapping[str, Any]) -> TraceCall:
    arguments = record.get("replay") or record["arguments"]
    return TraceCall(
        command=arguments["command"],
        output=record["recorded_output"],
        output_length=record.get("recorded_output_full_chars", len(record["recorded_output"])),
        recorded_code=TIMED_OUT if record.get("timed_out") else record.get("recorded_rc"),
        replay_code=TIMED_OUT if record.get("replay_timed_out") else record.get("replay_rc"),
        replay_similarity=record.get("replay_similarity"),
        thinking=record.get("thinking_seconds"),
        seconds=float(record.get("replay_seconds") or 0.0),
        read_only=bool(record.get("read_only", False)),
    )


# -- comparing

# What two runs of one thing differ in by nature, and what stands for it. Order matters: dates before bare numbers.
_NORMAL: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), word)
    for pattern, word in (
        (r"\x1b\[[0-9;?]*[A-Za-z]", ""),
        (r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,?\s+(?=\w{3}\b|\d)", ""),
        (r"\b\d{4}[-/]\d\d[-/]\d\d(?:[T _]\d\d[:-]?\d\d(?:[:-]?\d\d(?:[.,]\d+)?)?)?(?:Z|\s?[+-]\d\d:?\d\d)?", "<date>"),
        (r"\b\d{1,2}/(?:\d\d|[A-Z][a-z]{2})/\d{4}(?::\d\d:\d\d:\d\d(?: [+-]\d{4})?)?", "<date>"),
        (
            r"\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?\s+\d{1,2},?"
            r"(?:\s+\d{1,2}:\d\d(?::\d\d)?)?(?:\s+(?:UTC|GMT|[AP]M))?(?:\s+\d{4})?",
            "<date>",
        ),
        (r"(?<!\d)\d{8}[_-]?\d{6}(?!\d)", "<date>"),
        (r"\b\d{1,2}:\d\d(?::\d\d(?:[.,]\d+)?)?\b", "<time>"),
        (r"\b0x[0-9a-fA-F]+\b", "<address>"),
        (r"\b(?:[0-9A-Fa-f]{2}:){5,}[0-9A-Fa-f]{2}\b", "<hash>"),
        (r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,128}\b", "<hash>"),
        (r"\b\d+(?:\.\d+)?\s?(?:ns|us|µs|ms|s|sec|secs|seconds|minutes)\b", "<duration>"),
        (r"\b\d+(?:[.,]\d+)?\s?(?:[kKMGT]i?B?|bytes)\b(?:/s)?", "<size>"),
        # ls -l and du: the links and the size are followed by an owner, the size by a date.
        (r"(?m)^([-dlbcps][-rwxsStT]{9}[.+@]?)\s+\d+\s+(\S+)\s+(\S+)\s+\d+\s", r"\1 \2 \3 "),
        (r"(?m)^total \d+$", "total"),
        (r"\bPython 3\.\d+\.\d+", "Python <version>"),
        (r"(?m)^WARNING: Running pip as the 'root' user .*$", ""),
        (r"[ \t]+(?=\n|$)", ""),
    )
)


def normal(text: str) -> str:
    """`text` without the dates, times, hashes, sizes, addresses and durations in it."""
    for pattern, word in _NORMAL:
        text = pattern.sub(word, text)
    return text.strip()


def similarity(ours: str, recorded: str, recorded_length: int | None = None) -> float:
    """How alike two outputs are, 0 to 1; 1 = the same when normalised, 0.99 = the same lines in another order.

    Where only the beginning of the recorded output was kept, only that much of ours is looked at.
    """
    if recorded_length is not None and recorded_length > len(recorded):
        ours = ours[: len(recorded)]
    if ours.strip() == recorded.strip():
        return 1.0
    a, b = normal(ours), normal(recorded)
    if a == b:
        return 1.0
    a_sorted, b_sorted = ("\n".join(sorted(text.splitlines())) for text in (a, b))
    if a_sorted == b_sorted:
        return 0.99
    return min(0.98, max(_ratio(a, b), _ratio(a_sorted, b_sorted)))


def _ratio(a: str, b: str) -> float:
    # Bounded: two long outputs that differ everywhere would take seconds.
    return difflib.SequenceMatcher(None, a[:4000], b[:4000], autojunk=False).ratio()


@dataclass(frozen=True)
class Comparison:
    """A call made again beside its recording. `code` None: the sources agree on no exit code to expect."""

    call: TraceCall
    code: int | None  # what we got
    similarity: float

    @property
    def comparable(self) -> bool:
        return self.call.code is not None

    @property
    def agrees(self) -> bool:
        """Whether the exit code is the one to expect."""
        return self.code == self.call.code


def compare(call: TraceCall, result: ToolResult) -> Comparison:
    """Compare a result with what was recorded of the call."""
    code = TIMED_OUT if result.exit_reason is ExitReason.TIMEOUT else result.exit_code
    return Comparison(call, code, similarity(result.output, call.output, call.output_length))
