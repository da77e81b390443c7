"""tail follows a file and a name that is replaced, from the place where it was."""

import os
import subprocess
import time
from pathlib import Path

from victim import expect, go, ok, ready

# tail takes an overlay for remote, and polls there.
LOGS = Path("/dev/shm")


def until(path: str, text: str, what: str) -> None:
    deadline = time.monotonic() + 10
    while (seen := (LOGS / path).read_text()) != text:
        expect(time.monotonic() < deadline, f"{what}: {seen!r}, not {text!r}")
        time.sleep(0.01)


def append(path: str, text: str) -> None:
    with open(LOGS / path, "a") as file:
        file.write(text)


append("tool.log", "one\n")
append("tool.rotated", "first\n")
tails = []
for option, path in (("-f", "tool.log"), ("-F", "tool.rotated")):
    with open(LOGS / f"seen {path}", "w") as seen:
        tails.append(subprocess.Popen(["tail", option, LOGS / path], stdout=seen, stderr=subprocess.DEVNULL))
until("seen tool.log", "one\n", "tail -f")
until("seen tool.rotated", "first\n", "tail -F")
append("tool.log", "two\n")
until("seen tool.log", "one\ntwo\n", "tail -f")
for tail in tails:
    held = [os.readlink(f"/proc/{tail.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{tail.pid}/fd")]
    expect(any("inotify" in link for link in held), "tail does not use inotify")
ready()
go()
append("tool.log", "three\n")
until("seen tool.log", "one\ntwo\nthree\n", "tail -f")
os.rename(LOGS / "tool.rotated", LOGS / "tool.rotated.1")
append("tool.rotated", "second\n")
until("seen tool.rotated", "first\nsecond\n", "tail -F")
append("tool.rotated", "third\n")
until("seen tool.rotated", "first\nsecond\nthird\n", "tail -F")
for tail in tails:
    expect(tail.poll() is None, "tail ended")
    tail.kill()
ok()
