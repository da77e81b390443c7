"""What may be answered from the cache: a static, conservative guess, and the comparison of a replay with its record.

A stopgap. Reading the text of a call cannot tell what it does: a script may look at the clock without a word of it in
the command. The guess is therefore only half of the rule. The other half is observed: a call whose replay disagrees
with its record is never answered from the cache again at that point. A word that merely looks suspicious
(`echo date`) costs a hit and nothing else.
"""

from __future__ import annotations

import re

from bunshin_gym.tools.call import ToolCall, ToolResult
from bunshin_gym.tools.computer import COMPUTER
from bunshin_gym.tools.desktop import DESKTOP_TOOLS

__all__ = ["agree", "cacheable", "seen", "strict"]

_OF_A_DESKTOP = {*DESKTOP_TOOLS, COMPUTER.name}

# Commands that read the clock, randomness, process numbers, the load of the machine, or the outside world; and those
# that leave something running that changes the workspace on its own, so that its state depends on when one looks.
_COMMANDS = (
    "date|time|times|uuidgen|mktemp|shuf|ps|top|htop|pgrep|pidof|uptime|free|vmstat|iostat|w|who|last|dmesg|lsof|ss|"
    "netstat|curl|wget|ssh|scp|rsync|ftp|nc|ncat|telnet|ping|dig|host|nslookup|pip3?|pipx|uv|conda|apt|apt-get|npm|npx|yarn|pnpm|"
    "nohup|setsid|daemonize|disown|coproc|screen|tmux|at|systemctl|service"
)
_BEFORE_COMMAND = (
    r"(?:^|[;&|(\n`{'\"]|\b(?:sudo|env|xargs|do|then|else|exec|command|timeout\s+\S+)\s|!)"
    r"\s*(?:\w+=\S*\s+)*(?:/\S*/)?"
)
_SHELL_VOLATILE = re.compile(
    rf"{_BEFORE_COMMAND}(?:{_COMMANDS})(?![\w.=/-])"
    r"|\bgit\s+(?:[^;&|]*\s)?(?:clone|fetch|pull|push|ls-remote|commit)\b"
    r"|\bpip3?\s+(?:install|download|index)\b"
    r"|\$\{?(?:RANDOM|SRANDOM|EPOCHSECONDS|EPOCHREALTIME|SECONDS|BASHPID|PPID)\b"
    r"|\$\$|\$!|\$\{[$!]\}"
    r"|/dev/u?random|/proc/|/sys/"
    r"|\bjobs\s+-\w*[lp]"
    r"|\b(?:random|secrets|uuid[14]?|datetime|perf_counter|monotonic|getpid|urandom)\b|\btime\.\w"
)
# An & that starts a job: not &&, not a redirection (2>&1, &>, <&3), not |&.
_BACKGROUND = re.compile(r"(?<![&>|<\\])&(?![&>])")
_PYTHON_VOLATILE = re.compile(
    r"\b(?:random|secrets|uuid|time|datetime|perf_counter|monotonic|getpid|urandom|socket|urllib|requests|httpx|http|id|"
    r"hash|threading|multiprocessing|subprocess|asyncio|object)\b"
)


def cacheable(call: ToolCall) -> bool:
    """Whether the result of `call` is, as far as its text tells, a function of the workspace's state alone.

    After a call for which this is False the workspace belongs to its rollout alone: nothing below it is shared.
    """
    if call.name in _OF_A_DESKTOP:  # its programs go on by themselves
        return False
    if call.name in ("read_file", "write_file"):
        return not str(call.args.get("path", "")).startswith(("/proc", "/sys", "/dev"))
    if call.name == "python":
        return not _PYTHON_VOLATILE.search(str(call.args.get("code", "")))
    text = str(call.args.get("command", ""))
    if "argv" in call.args:
        # Arguments are not shell source: no & among them starts a job.
        return not _SHELL_VOLATILE.search(" ".join(map(str, call.args["argv"])))
    return not (_SHELL_VOLATILE.search(text) or _BACKGROUND.search(text))


# What differs between two runs of one thing without meaning anything: when it was, how long it took, and where in
# memory or under which number. `ls -l` and the last line of a test run would otherwise never replay.
_NOISE = re.compile(
    r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)?"
    r"|\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\s+\d{1,2}\s+(?:\d\d:\d\d|\d{4})"
    r"|\b\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?\b"
    r"|\b\d+(?:\.\d+)?\s*(?:ns|us|µs|ms|s|sec|secs|seconds)\b"
    r"|\b0x[0-9a-f]{4,}\b"
)


def agree(recorded: ToolResult, replayed: ToolResult) -> bool:
    """Whether a replay gave what the record says, but for times, durations and addresses in the text."""
    if (recorded.exit_code, recorded.exit_reason) != (replayed.exit_code, replayed.exit_reason):
        return False
    return recorded.output == replayed.output or _plain(recorded.output) == _plain(replayed.output)


def _plain(text: str) -> str:
    return _NOISE.sub("*", text)


_STRICT = re.compile(
    rf"{_BEFORE_COMMAND}(?:make|gmake|ninja|cmake|stat|rsync|tar|zip|cpio|ccache|scons|meson|bazel)(?![\w.=/-])"
    r"|\bls\s+(?:[^;&|\n]*\s)?-\w*[lgontci]"
    r"|\bll\b|\bfind\b[^;&|\n]*-(?:newer\w*|[amc](?:time|min)|inum|samefile|printf|ls|fprintf)"
    r"|\s-(?:nt|ot|ef)\s|\bcp\s+(?:[^;&|\n]*\s)?-\w*u|\bdate\s+-r"
    r"|\b(?:getmtime|getctime|st_mtime|st_ino|st_ctime|os\.stat)\b"
)


def strict(call: ToolCall) -> bool:
    """Whether the call can notice what a digest of the state leaves out: modification times, inode numbers."""
    if call.name == "python":
        return bool(_STRICT.search(str(call.args.get("code", ""))))
    if "argv" in call.args:
        return bool(_STRICT.search(" ".join(map(str, call.args["argv"]))))
    return bool(_STRICT.search(str(call.args.get("command", ""))))


def seen(call: ToolCall, result: ToolResult) -> str:
    """What the result shows the call to have looked at beside the state; "" for nothing."""
    return ""
