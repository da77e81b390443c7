"""An interactive bash on a terminal with a stopped job, a background job, variables and functions."""

import os
import pty
import re
import select
import time

from victim import expect, go, ok, ready

pid, master = pty.fork()
if pid == 0:
    os.environ["PS1"] = "> "
    os.execv("/bin/bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"])
seen = ""


def until(pattern: str, seconds: float = 20.0) -> str:
    """What comes up to the first match."""
    global seen
    end = time.monotonic() + seconds
    while not (match := re.search(pattern, seen)):
        left = end - time.monotonic()
        expect(left > 0, f"no {pattern!r} in {seen[-300:]!r}")
        if select.select([master], [], [], max(left, 0))[0]:
            seen += os.read(master, 4096).decode(errors="replace")
    before, seen = seen[: match.end()], seen[match.end() :]
    return before


def typed(text: str) -> None:
    os.write(master, text.encode())


until("> ")
typed("stty -echo\n")
until("> ")
typed("variable=kept; f() { echo function $1; }\n")
until("> ")
typed("sleep 1000\n")
time.sleep(0.3)
typed("\x1a")
until("Stopped")
until("> ")
typed("sleep 2000 &\n")
until("> ")
ready()
go()
typed("echo is-$variable\n")
until("is-kept")
until("> ")
typed("f of-its-own\n")
until("function of-its-own")
typed("jobs\n")
until(r"\[1\]. +Stopped +sleep 1000")
typed("fg %1\n")
until("sleep 1000")
time.sleep(0.2)
typed("\x03")
typed("echo code $?\n")
until("code 130")
typed("kill %2; wait; exit 7\n")
_, status = os.waitpid(pid, 0)
expect(os.waitstatus_to_exitcode(status) == 7, f"bash ended with {status:x}")
ok()
