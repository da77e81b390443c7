"""A terminal multiplexer with an attached client, and in its panes an editor, a pager, a monitor and a shell."""

from __future__ import annotations

import time

import pytest
from programs.scene import Branch, Scene, together

pytestmark = [pytest.mark.engine("native"), pytest.mark.timeout(120)]


@pytest.mark.needs("tmux", "vim", "less", "top")
def test_tmux_with_vim_less_top_and_a_shell(scene: Scene) -> None:
    source = scene.source(env={"TERM": "xterm", "HOME": "/root", "LANG": "C.UTF-8", "SHELL": "/bin/bash"})
    source.sh("seq 1 2000 | sed 's/^/line /' >/work/long; printf 'first\\nsecond\\n' >/work/text")
    source.sh("tmux -f /dev/null new-session -d -x 160 -y 48 -n all 'vim -N -u NONE -i NONE /work/text'")
    source.sh(
        "tmux split-window -h 'less /work/long'; tmux split-window -v 'top -d 0.5'; tmux split-window -v 'bash --norc'"
    )
    assert source.sh("tmux list-panes -F '#P #{pane_current_command} #{pane_dead}'").count("\n") == 4
    # A client that shows it all, on a terminal of its own.
    source.sh("mkfifo /work/tty; exec 6<>/work/tty")
    source.start("script -qfc 'stty rows 48 cols 160; tmux attach' /work/screen </work/tty")
    source.until("tmux list-clients -F '#{client_session}'", "0")
    keys = "tmux send-keys -t"
    source.until("tmux capture-pane -p -t %0", "second")
    source.sh(
        f"{keys} %0 'Gounsaved text' Escape; sleep 0.3; {keys} %0 'yyp' ':set number' Enter; {keys} %0 -l 'ihalf a wo'"
    )
    source.sh(f"{keys} %1 '/line 77' Enter")
    source.sh(
        f"{keys} %3 'kept=before; i=0; while sleep 0.1; do echo $((i += 1)) >>/work/count; done &' Enter; "
        f"{keys} %3 -l 'echo typed ahe'"
    )
    source.until("tmux capture-pane -p -t %0", r"3 unsaved text\s+│?.*\n\s*4 .*half a wo|half a wo")
    source.until("tmux capture-pane -p -t %1", "^line 77")
    source.until("tmux capture-pane -p -t %2", "top - ")
    source.until("tail -1 /work/count", "[3-9]")
    branches = scene.fork(
        source, "tmux -V; true",
        "an attached client; vim with an unsaved buffer, inserting; less; top; a shell with a job and half a line",
    )  # fmt: skip

    def go_on(branch: Branch) -> None:
        n = branch.number
        assert "│" in branch.sh("tmux -u capture-pane -p -t %0; tmux list-clients; echo │")
        branch.sh(f"{keys} %0 -l 'rd {n} '; {keys} %0 Escape; sleep 0.3; {keys} %0 u")
        assert branch.get("/work/text") == "first\nsecond\n", "it was saved"
        branch.sh(f"{keys} %0 C-r ':w' Enter")
        branch.until("cat /work/text", f"^first\nsecond\nunsaved text\nhalf a word {n} unsaved text\n$")
        branch.sh(f"{keys} %1 'n'; {keys} %1 '{500 + n}g'")
        branch.until("tmux capture-pane -p -t %1 | head -1", f"^line {500 + n}\n")
        before = branch.until("tmux capture-pane -p -t %2 | head -1", "top - ")
        branch.sh(f"{keys} %3 -l 'ad $kept {n} >/work/typed'; {keys} %3 Enter")
        branch.until("cat /work/typed", f"^typed ahead before {n}\n$")
        # The job of that shell is still its own.
        branch.sh(f"{keys} %3 'kill %1; wait; echo gone >/work/typed' Enter")
        branch.until("cat /work/typed", "gone")
        numbers = [int(line) for line in branch.get("/work/count").split()]
        assert numbers == list(range(1, len(numbers) + 1))
        # Sizes: of the client's terminal, and of the pane that is made larger.
        branch.sh("tmux resize-pane -t %2 -Z")
        branch.until("tmux capture-pane -p -t %2 | head -1", "top - ")
        branch.sh(
            f"tmux resize-pane -t %2 -Z; tmux new-window -n w{n} 'cat >/work/cat'; "
            f"tmux send-keys -t w{n} 'hello {n}' Enter C-d"
        )
        branch.until("cat /work/cat", f"^hello {n}\n$")
        deadline = time.monotonic() + 20
        while branch.sh("tmux capture-pane -p -t %2 | head -1") == before:
            assert time.monotonic() < deadline, "top stands still"
            time.sleep(0.2)
        # One after the other: less forgets what was typed when its size changes.
        for pane, word in ((1, "q"), (2, "q"), (0, ":q! Enter"), (3, "exit Enter")):
            branch.sh(f"{keys} %{pane} {word}")
            branch.until(f"! tmux list-panes -a -F '#D' 2>/dev/null | grep -x %{pane}")
        branch.until("! tmux has-session 2>/dev/null")
        branch.until("! pgrep script >/dev/null")
        assert "\x1b" in branch.workspace.read_file("/work/screen").decode(errors="replace")

    together(branches, go_on)


def test_a_debugger_of_python_at_its_prompt(scene: Scene) -> None:
    """pdb under `script`: a raw terminal, readline, and a frame that is stopped half-way."""
    source = scene.source()
    source.put(
        "/work/buggy.py",
        """
def total(items):
    result = 0
    for item in items:
        result += item
    return result
breakpoint()
print("total", total([1, 2, 3, extra]))
""",
    )
    source.sh("mkfifo /work/keys; exec 6<>/work/keys")
    source.start(
        'script -qfc \'python3 -c "extra = 4; exec(open(\\"/work/buggy.py\\").read())"\' /work/session </work/keys'
    )
    source.until("tail -c 6 /work/session", r"\(Pdb\)")
    source.sh("echo 'x = 20' >&6; printf 'extra = x + ' >&6")
    source.until("tail -c 13 /work/session", "extra = x")
    branches = scene.fork(
        source, 'echo "pdb of $(python3 --version)"', "at its prompt, half a line typed, on a terminal of `script`"
    )

    def go_on(branch: Branch) -> None:
        branch.sh(f"printf '{branch.number}\\n' >&6; echo continue >&6")
        branch.until("cat /work/session", f"total {26 + branch.number}\r")
        branch.until("! pgrep -x script >/dev/null")

    together(branches, go_on)
