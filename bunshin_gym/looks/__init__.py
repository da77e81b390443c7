"""What a call looks at beside the workspace's state: seen in its text before it runs, and in its result afterwards.

The text is parsed (tree-sitter for the shell, `ast` for Python), so that `echo date` looks at nothing and
`timeout 5 bash -c "date"` does. It cannot tell what a script does that lies in the workspace. What a result shows, and
the audit of hits, are for that.
"""

from __future__ import annotations

from functools import lru_cache

from bunshin_gym.looks.look import NOTHING, Look
from bunshin_gym.looks.python import look_of_code
from bunshin_gym.looks.result import agree, shown
from bunshin_gym.looks.shell import look_of_argv, look_of_shell
from bunshin_gym.tools.call import ToolCall, ToolResult
from bunshin_gym.tools.computer import COMPUTER
from bunshin_gym.tools.desktop import DESKTOP_TOOLS

__all__ = ["Look", "agree", "cacheable", "leaves_running", "of", "seen", "strict"]

_OF_A_DESKTOP = {*DESKTOP_TOOLS, COMPUTER.name}  # its programs go on by themselves


def of(call: ToolCall) -> Look:
    """What the call looks at, as far as its text tells. Found out once for each call object."""
    known: Look | None = getattr(call, "_look", None)
    if known is None:
        known = _of(call)
        object.__setattr__(call, "_look", known)
    return known


def _of(call: ToolCall) -> Look:
    if call.name == "shell":
        return _of_shell(str(call.args.get("command", "")))
    if call.name == "python":
        return _of_code(str(call.args.get("code", "")))
    if call.name == "exec":
        if "argv" in call.args:
            argv = [str(word) for word in call.args["argv"]]
            return look_of_argv(argv[0], [*argv[1:]]) if argv else NOTHING
        return _of_shell(str(call.args.get("command", "")))
    if call.name in ("read_file", "write_file"):
        outside = str(call.args.get("path", "")).startswith(("/proc", "/sys", "/dev"))
        return Look("the machine") if outside else NOTHING
    return Look("a live desktop") if call.name in _OF_A_DESKTOP else NOTHING


@lru_cache(maxsize=8192)
def _of_shell(text: str) -> Look:
    return look_of_shell(text)


@lru_cache(maxsize=4096)
def _of_code(text: str) -> Look:
    return look_of_code(text, session=True)


def cacheable(call: ToolCall) -> bool:
    """Whether the result of `call` is, as far as its text tells, a function of the workspace's state alone.

    After a call for which this is False the workspace belongs to its rollout alone: nothing below it is shared.
    """
    look = of(call)
    return not (look.outside or look.leaves_running)


def leaves_running(call: ToolCall) -> bool:
    """Whether the call may leave something behind that changes the workspace on its own."""
    return of(call).leaves_running


def strict(call: ToolCall) -> bool:
    """Whether the call can notice what a digest of the state leaves out: modification times, inode numbers."""
    return bool(of(call).strict)


def seen(call: ToolCall, result: ToolResult) -> str:
    """What a result that has just come shows its call to have looked at beside the state; "" for nothing."""
    return shown(of(call), result)
