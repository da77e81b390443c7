"""From the library's records and errors to the package's."""

from __future__ import annotations

from bunshin_gym._native import NativeFailure
from bunshin_gym._native import handles as codes
from bunshin_gym.errors import ForkError, UnsupportedResource, WorkspaceBusy, WorkspaceError, WorkspaceLost
from bunshin_gym.tools.call import ExitReason, ToolResult
from bunshin_gym.workspace import ForkReport

__all__ = ["codes", "public_error", "public_report", "public_result"]

_REASONS = [
    ExitReason.EXITED, ExitReason.SIGNALED, ExitReason.TIMEOUT, ExitReason.SHELL_EXITED, ExitReason.OUT_OF_MEMORY,
    ExitReason.WORKSPACE_LOST,
]  # fmt: skip


def public_error(failure: NativeFailure) -> WorkspaceError:
    """The public exception for a failure of the library."""
    kind: type[WorkspaceError] = {
        codes.FORK: ForkError,
        codes.LOST: WorkspaceLost,
        codes.BUSY: WorkspaceBusy,
    }.get(failure.code, WorkspaceError)
    if failure.code == codes.UNSUPPORTED:
        text = failure.message
        comm = text.partition("(")[2].partition(")")[0]
        fd = failure.fd if failure.fd >= 0 else None
        return UnsupportedResource(text, pid=failure.pid, comm=comm, fd=fd, reason=text.rpartition(", ")[2])
    return kind(failure.message, errno=failure.errno or None)


def public_result(outcome: codes.CallOutcome) -> ToolResult:
    return ToolResult(
        output=outcome.output.decode(errors="replace"),
        stdout=outcome.stdout,
        stderr=outcome.stderr,
        exit_code=outcome.exit_code,
        exit_reason=_REASONS[outcome.reason],
        truncated=outcome.truncated,
        duration=outcome.duration,
        stdout_total=outcome.stdout_total,
        stderr_total=outcome.stderr_total,
        notice=outcome.notice,
        call_id=outcome.call,
    )


def public_report(text: str) -> ForkReport:
    stages: dict[str, float] = {}
    counts: dict[str, int] = {}
    skipped, notes = [], []
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == "skipped":
            skipped.append(value)
        elif name == "note":
            notes.append(value)
        elif name.startswith("bytes-") or name in ("processes", "threads"):
            counts[name] = int(value)
        else:
            stages[name] = float(value)
    return ForkReport(
        stages, counts.get("bytes-shared", 0), counts.get("bytes-copied", 0), tuple(skipped),
        counts.get("processes", 0), counts.get("threads", 0), tuple(notes),
    )  # fmt: skip
