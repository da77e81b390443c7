"""What a predictor knows: the calls a rollout has made, what they gave, and what its policy has written since.

Predictors look at calls as texts: the one argument in which a call says what to do. Most agents begin every command
with `cd somewhere &&`, or none does: that is a habit, not part of what is done, so it is set apart and put back.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from bunshin_gym.tools import ToolCall, ToolResult

__all__ = ["PATH", "Made", "Past", "Said", "paths", "said", "shape"]

# The argument that says what a call does, by tool.
_TEXTS = {"shell": "command", "exec": "command", "python": "code", "read_file": "path"}
_HABIT = re.compile(r"\s*cd\s+(?P<where>[\w./~-]+)\s*(?:&&|;)\s*")
_WORD = re.compile(r"[^\s|&;<>()'\"`]+")
PATH = re.compile(r"(?<![\w/.*$-])(?:\.{0,2}/)?[\w@%+-][\w@%+.-]*(?:/[\w@%+.-]+)*(?![\w/*$])")
_LIKE_A_PATH = re.compile(r"/|\.[A-Za-z]\w{0,9}$")
_HEREDOC = re.compile(r"<<-?\s*['\"]?\w+")
_REDIRECTED = re.compile(r"(?<![<>&\d])>{1,2}\s*(?![&>])([\w@%+./-]+)")


class Made(NamedTuple):
    """A call that was made, and what it gave."""

    call: ToolCall
    result: ToolResult


class Said(NamedTuple):
    """A call as a text. `habit`: how it begins, where that is only a change of directory. `way`: all else of it."""

    habit: str
    text: str
    way: Hashable

    def spoken(self, like: ToolCall) -> ToolCall:
        """A call in the way of `like` that says this text."""
        return ToolCall(like.name, {**like.args, _TEXTS[like.name]: self.habit + self.text})


@dataclass(frozen=True)
class Past:
    """Where a rollout stands. `task`: what its siblings have in common. `text`: what its policy has written so far."""

    task: Hashable
    made: Sequence[Made] = ()
    text: str = ""

    @cached_property
    def recent(self) -> tuple[ToolCall, ...]:
        """The last calls, the last one first."""
        return tuple(one.call for one in reversed(self.made[-64:]))

    @cached_property
    def habit(self) -> str:
        """How most of its last commands begin."""
        habits = [one.habit for call in self.recent[:5] if (one := said(call)) is not None]
        return max(habits, key=habits.count) if habits else ""

    def like(self) -> ToolCall | None:
        """The last call that is a text: those to come are made in its way."""
        return next((call for call in self.recent if said(call) is not None and call.name != "read_file"), None)


@lru_cache(maxsize=16384)
def said(call: ToolCall) -> Said | None:
    """The call as a text; None where it is none."""
    name = _TEXTS.get(call.name)
    text = call.args.get(name) if name is not None else None
    if not isinstance(text, str):
        return None
    way = (call.name, repr(sorted((key, value) for key, value in call.args.items() if key != name)))
    begin = _HABIT.match(text) if name == "command" else None
    habit = begin.group() if begin is not None and begin.end() < len(text) else ""
    return Said(habit, text[len(habit) :], way)


@lru_cache(maxsize=16384)
def shape(text: str) -> str:
    """What kind of command it is: the programs of its pipeline, with what tells reading, writing and running apart."""
    line = text.lstrip().partition("\n")[0]
    kinds = []
    for part in re.split(r"\|\||&&|[|;]", re.sub(r"'[^']*'|\"[^\"]*\"", "Q", line))[:3]:
        words = _WORD.findall(part)
        if not words:
            continue
        program = "run" if words[0].startswith("./") else words[0].rpartition("/")[2]
        kind = program
        if program in ("git", "pip", "apt-get", "apt", "npm", "cargo", "go", "make", "docker") and len(words) > 1:
            kind += " " + words[1]
        elif program.startswith("python") and len(words) > 1:
            kind = "python " + (" ".join(words[1:3]) if words[1] == "-m" else words[1] if words[1][0] == "-" else "F")
        elif program in ("sed", "perl") and "-i" in words:
            kind += " -i"
        kinds.append(kind)
    kind = " | ".join(kinds)
    if _HEREDOC.search(line):
        kind += " <<"
    return kind + (" >" if _REDIRECTED.search(line) else "")


def changes(text: str) -> bool:
    """Whether a command looks as if it wrote to a file of the project: what makes one try again."""
    kind = shape(text)
    return kind.endswith((">", "<<")) or kind.startswith(("sed -i", "perl -i", "cp", "mv", "git checkout", "patch"))


@lru_cache(maxsize=16384)
def paths(text: str) -> tuple[str, ...]:
    """What looks like a path in a command, each once, in the order in which it stands there."""
    head = text.partition("\n")[0] if _HEREDOC.search(text.partition("\n")[0]) else text
    written = [match.group(1) for match in _REDIRECTED.finditer(head)]
    found = [match.group() for match in PATH.finditer(head) if _LIKE_A_PATH.search(match.group())]
    return tuple(dict.fromkeys([*written, *found]))[:12]
