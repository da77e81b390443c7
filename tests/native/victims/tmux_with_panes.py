"""tmux with two panes, one of them in less, and nobody attached: both go on, and somebody can attach."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time

from victim import HERE, expect, go, ok, ready

os.environ.update(TMUX_TMPDIR=str(HERE), TERM="screen", LANG="C.UTF-8", SHELL="/bin/bash", HISTFILE="")
PANES = "#{pane_tty} #{pane_pid} #{pane_width}x#{pane_height} #{pane_current_command}"
TMUX = ["tmux", "-f", "/dev/null", "-L", "victim"]


def tmux(*words: str) -> str:
    done = subprocess.run([*TMUX, *words], capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
    expect(done.returncode == 0, f"tmux {words}: {done.stderr}")
    return done.stdout


def until(pane: str, text: str) -> str:
    deadline = time.monotonic() + 15
    while text not in (shown := tmux("capture-pane", "-p", "-t", pane)):
        expect(time.monotonic() < deadline, f"pane {pane} shows {shown!r}, not {text!r}")
        time.sleep(0.02)
    return shown


(HERE / "long").write_text("".join(f"line {number}\n" for number in range(1000)))
tmux("new-session", "-d", "-s", "work", "-x", "90", "-y", "30", "env PS1=% bash --norc --noprofile")
tmux("split-window", "-t", "work", "-h", f"env LESS= less {HERE}/long")
tmux("send-keys", "-t", "work.0", "x=kept; trap 'echo winch-$x' WINCH; echo set-$x; cat", "Enter")
until("work.0", "set-kept")
tmux("send-keys", "-t", "work.0", "half a li")
tmux("send-keys", "-t", "work.1", "40j")
until("work.1", "line 40")
until("work.0", "half a li")
before = [tmux("capture-pane", "-p", "-t", f"work.{pane}") for pane in range(2)]
for _ in range(500):  # tmux looks from time to time at what runs in its panes
    names = tmux(
        "list-panes", "-t", "work", "-F", "#{pane_tty} #{pane_pid} #{pane_width}x#{pane_height} #{pane_current_command}"
    )
    if "less" in names and "cat" in names:
        break
    time.sleep(0.02)
expect("less" in names and "cat" in names, f"the panes are {names}")
ready()
go()
for pane in range(2):
    now = tmux("capture-pane", "-p", "-t", f"work.{pane}")
    expect(now == before[pane], f"pane {pane} shows {now!r}, not {before[pane]!r}")
again = tmux(
    "list-panes", "-t", "work", "-F", "#{pane_tty} #{pane_pid} #{pane_width}x#{pane_height} #{pane_current_command}"
)
expect(again == names, f"the panes are {again}, not {names}")
tmux("send-keys", "-t", "work.0", "ne", "Enter")
until("work.0", "half a line\nhalf a line")
tmux("send-keys", "-t", "work.0", "C-c")
until("work.0", "^C\n%")  # what is typed before that is flushed by it
tmux("send-keys", "-t", "work.0", "echo still-$x; tty", "Enter")
shown = until("work.0", "still-kept\n")
expect("winch-kept" not in shown, f"somebody says that the size changed: {shown!r}")
until("work.0", names.split()[0])
tmux("send-keys", "-t", "work.1", "G")
until("work.1", "line 999")
pid, master = pty.fork()  # a client of another size attaches
if pid == 0:
    os.execvp("tmux", [*TMUX, "attach", "-t", "work"])
seen, deadline = b"", time.monotonic() + 15
while b"line 98" not in seen:  # whatever part of its end fits there
    expect(time.monotonic() < deadline, f"an attached client is shown {seen[-300:]!r}")
    if select.select([master], [], [], 0.1)[0]:
        seen += os.read(master, 65536)
tmux("detach-client", "-s", "work")
os.waitpid(pid, 0)
tmux("kill-server")
ok()
