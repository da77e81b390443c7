"""Which looks at clock and chance are none outside, where those are frozen: docs/frozen.md has the table behind this.

Only programs that are known to take what is frozen count. Whatever else looks there stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from bunshin_gym.frozen import Given
from bunshin_gym.looks.look import Look

__all__ = ["VARIABLES", "left", "loses"]

Args = Sequence[str | None]

# By name; "" is the shell itself, which opens what is redirected.
_CLOCK = {"", "date", "find", "git", "awk", "gawk", "mawk", "perl", "ruby", "node"}
_RANDOM = {"", "mktemp", "uuidgen", "shuf", "sort", "openssl", "perl", "ruby", "node"}
# What reads the devices when it is told to, among other files.
_READERS = {"cat", "head", "tail", "od", "xxd", "hexdump", "dd", "tr", "base64", "cut", "fold", "wc", "cp", "tee"}
_READERS |= {"sed", "grep", "md5sum", "sha1sum", "sha256sum", "gzip", "strings", "cmp", "awk", "gawk", "mawk", "sort"}
_RANDOM |= _READERS
VARIABLES = {"RANDOM", "SRANDOM", "EPOCHSECONDS", "EPOCHREALTIME"}
"""Those of bash that take what is frozen. SECONDS does, too, but what it was set to is not in the state."""


def left(look: Look, name: str, args: Args, given: Given) -> Look:
    """What is left of a command's `look` where it takes what is `given`."""
    if look.outside not in given:
        return look
    taken = _clock(name, args) if look.outside == "clock" else _random(name, args, given)
    return replace(look, outside="") if taken else look


def _clock(name: str, args: Args) -> bool:
    return name in _CLOCK and not (name == "git" and "gc" in args)  # which compares with the times of files


def _random(name: str, args: Args, given: Given) -> bool:
    if name == "openssl":
        made = args[0] if args else None
        return made in ("rand", "genpkey", "genrsa") or (made == "req" and "clock" in given)  # certificates have dates
    if name == "uuidgen":
        return not any(arg is None or re.match(r"-\w*t|--time", arg) for arg in args)
    return name in _RANDOM


def loses(name: str, args: Args) -> bool:
    """Whether what this command runs is out of reach: in a cleared environment, or with another library before ours."""
    if name == "env":
        return any(arg is None or re.match(r"-$|-\w*[iu]|--(?:ignore|unset)", arg) for arg in args)
    if name == "exec":
        return any(arg is None or re.fullmatch(r"-\w*c\w*", arg) for arg in args[:2])
    return name in ("sudo", "doas", "su", "runuser", "chroot", "busybox", "faketime", "zsh", "ksh", "ash")
