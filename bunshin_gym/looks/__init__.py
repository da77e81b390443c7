"""What a call looks at beside the workspace's state: seen in its text before it runs, and in its result afterwards.

The text is parsed (tree-sitter for the shell, `ast` for Python), so that `echo date` looks at nothing and
`timeout 5 bash -c "date"` does. It cannot tell what a script does that lies in the workspace. What a result shows, and
the audit of hits, are for that.
"""

from __future__ import annotations

from functools import lru_cache

from bunshin_gym.frozen import NOTHING_GIVEN, Given
from bunshin_gym.looks.look import NOTHING, Look
from bunshin_gym.looks.python import look_of_code
from bunshin_gym.looks.result import agree, shown
from bunshin_gym.looks.shell import look_of_argv, look_of_shell
from bunshin_gym.tools.call import ToolCall, ToolResult
from bunshin_gym.tools.computer import COMPUTER
from bunshin_gym.tools.desktop import DESKTOP_TOOLS

__all__ = ["Look", "agree", "cacheable", "leaves_running", "of", "seen", "strict"]

_PRELOAD = "LD_PRELOAD"
_OF_A_DESKTOP = {*DESKTOP_TOOLS, COMPUTER.name}  # its programs go on by themselves


def of(call: ToolCall, given: Given = NOTHING_GIVEN) -> Look:
    """What the call looks at, as far as its text tells, beside what is `given` to it (see docs/frozen.md).

    Found out once for each call object.
    """
    known: dict[Given, Look] | None = getattr(call, "_looks", None)
    if known is None:
        known = {}
        object.__setattr__(call, "_looks", known)
    look = known.get(given)
    if look is None:
        look = known[given] = _of(call, given)
    return look


def _of(call: ToolCall, given: Given) -> Look:
    if given and _PRELOAD in str(call.args):
        return of(call) | Look("what is loaded into its programs")
    if call.name == "shell":
        return _of_shell(str(call.args.get("command", "")), given)
    if call.name == "python":
        return _of_code(str(call.args.get("code", "")), given)
    if call.name == "exec":
        if "argv" in call.args:
            argv = [str(word) for word in call.args["argv"]]
            return look_of_argv(argv[0], [*argv[1:]], given=given) if argv else NOTHING
        command = str(call.args.get("command", ""))
        return _of_shell(command, given if _runs_bash(call) else NOTHING_GIVEN)
    if call.name in ("read_file", "write_file"):
        outside = str(call.args.get("path", "")).startswith(("/proc", "/sys", "/dev"))
        return Look("the machine") if outside else NOTHING
    return Look("a live desktop") if call.name in _OF_A_DESKTOP else NOTHING


def _runs_bash(call: ToolCall) -> bool:
    """Whether an exec call's command goes to a shell whose variables take what is frozen, or that has none of them."""
    shell = call.args.get("shell") or ["/bin/sh"]
    return str(shell[0]).rpartition("/")[2] in ("sh", "bash", "dash")


@lru_cache(maxsize=8192)
def _of_shell(text: str, given: Given) -> Look:
    return look_of_shell(text, given=given)


@lru_cache(maxsize=4096)
def _of_code(text: str, given: Given) -> Look:
    return look_of_code(text, session=True, given=given)


def cacheable(call: ToolCall, given: Given = NOTHING_GIVEN) -> bool:
    """Whether the result of `call` is, as far as its text tells, a function of the workspace's state and of `given`.

    After a call for which this is False the workspace belongs to its rollout alone: nothing below it is shared.
    """
    look = of(call, given)
    return not (look.outside or look.leaves_running)


def leaves_running(call: ToolCall) -> bool:
    """Whether the call may leave something behind that changes the workspace on its own."""
    return of(call).leaves_running


def strict(call: ToolCall) -> bool:
    """Whether the call can notice what a digest of the state leaves out: modification times, inode numbers."""
    return bool(of(call).strict)


def seen(call: ToolCall, result: ToolResult, given: Given = NOTHING_GIVEN) -> str:
    """What a result that has just come shows its call to have looked at beside the state; "" for nothing."""
    return shown(of(call), result, given)
