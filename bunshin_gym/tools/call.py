"""A tool call and its result: what goes into a workspace, and what comes out."""

from __future__ import annotations

import copy
import enum
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bunshin_gym.errors import InvalidToolCall

__all__ = ["ExitReason", "ToolCall", "ToolResult", "clip", "lost"]

_IMMUTABLE = (str, int, float, bool, type(None))
# The first bytes of a UTF-8 character without its last, and the last ones without the first.
_CUT_AT_END = re.compile(rb"(?:[\xc0-\xff]|[\xe0-\xff][\x80-\xbf]|[\xf0-\xff][\x80-\xbf]{2})\Z")
_CUT_AT_START = re.compile(rb"\A[\x80-\xbf]{1,3}")


class ExitReason(enum.Enum):
    """Why a call is over."""

    EXITED = "exited"
    SIGNALED = "signaled"
    TIMEOUT = "timeout"
    SHELL_EXITED = "shell_exited"
    OUT_OF_MEMORY = "out_of_memory"
    WORKSPACE_LOST = "workspace_lost"


@dataclass(frozen=True)
class ToolCall:
    """The name of a tool and its raw arguments (JSON values). Equal calls have equal `key()`s, and equal hashes."""

    name: str
    args: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # A call is a key of the tree: what its maker does with the arguments afterwards must not reach it.
        args = {n: v if type(v) in _IMMUTABLE else copy.deepcopy(v) for n, v in dict(self.args).items()}
        object.__setattr__(self, "args", args)

    def key(self) -> bytes:
        """Canonical JSON of the call: the same for every spelling of the same arguments.

        Raises InvalidToolCall where the arguments are not JSON values.
        """
        known: bytes | None = getattr(self, "_key", None)
        if known is not None:
            return known
        try:
            key = json.dumps([self.name, dict(self.args)], sort_keys=True, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidToolCall(f"the arguments of {self.name!r} are not JSON values: {error}") from None
        object.__setattr__(self, "_key", key)  # asked for again at every look into a table
        return key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ToolCall) and self.key() == other.key()

    def __hash__(self) -> int:
        return hash(self.key())

    def __str__(self) -> str:
        """The call in one short line, for errors and logs."""
        value = next(iter(self.args.values()), "") if len(self.args) == 1 else dict(self.args)
        text = f"{self.name} {value!r}"
        return text if len(text) <= 80 else text[:77] + "..."


@dataclass(frozen=True)
class ToolResult:
    """What a call gave. Immutable, so that it may be handed out any number of times.

    `output` is what a person would have seen: both streams in the order they arrived, decoded as UTF-8 with
    replacement. `stdout` and `stderr` are bytes, each bounded, with the head and the tail kept (`truncated` says that
    something was left out, `stdout_total` and `stderr_total` how many bytes there were). `exit_code` is None when
    there is none (the workspace was lost), 124 after a timeout, 128 + n after death by signal n. `duration` is in
    seconds. `notice` is what the session itself has to say, e.g. that a fresh shell was started. `call_id` is the
    handle under which the output that background jobs write later can be read.
    """

    output: str
    stdout: bytes = b""
    stderr: bytes = b""
    exit_code: int | None = 0
    exit_reason: ExitReason = ExitReason.EXITED
    truncated: bool = False
    duration: float = 0.0
    stdout_total: int = 0
    stderr_total: int = 0
    notice: str = ""
    call_id: int = 0

    @property
    def ok(self) -> bool:
        """Whether the call ended by itself with exit code 0."""
        return self.exit_code == 0 and self.exit_reason is ExitReason.EXITED

    @property
    def size(self) -> int:
        """Roughly the memory this result takes, in bytes."""
        return 256 + len(self.output) + len(self.stdout) + len(self.stderr)


def lost(reason: str) -> ToolResult:
    """The result of a call whose workspace is gone."""
    return ToolResult("", exit_code=None, exit_reason=ExitReason.WORKSPACE_LOST, notice=reason)


def clip(data: bytes, limit: int) -> tuple[bytes, bool]:
    """Keep at most `limit` bytes: the first half and the last half, with a line between that says what is missing.

    The cut leaves no part of a UTF-8 character on either side of it.
    """
    if len(data) <= limit:
        return data, False
    head, tail = data[: limit - limit // 2], data[len(data) - limit // 2 :]
    head = _CUT_AT_END.sub(b"", head)
    tail = _CUT_AT_START.sub(b"", tail)
    return head + b"\n[... %d bytes left out ...]\n" % (len(data) - len(head) - len(tail)) + tail, True
