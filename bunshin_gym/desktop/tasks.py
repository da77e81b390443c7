"""What every desktop task is made of, and the one that asks for nothing."""

from __future__ import annotations

from bunshin_gym.task import Task

__all__ = ["DESKTOP_PLAYGROUND", "launch"]


def launch(command: str, *windows: str) -> str:
    """A set-up command: start a program in the background and wait for its windows, by a part of class or title."""
    awaited = ", ".join(f'"{window}"' for window in windows)
    program = command.split()[0]
    advice = f"Debian: apt-get install --no-install-recommends {program}"
    return (
        f"command -v {program} >/dev/null || {{ echo 'the image has no {program} ({advice})'; false; }} && "
        f"{{ {command} </dev/null >/dev/null 2>&1 & }} && "
        f"""sh /run/desktop/act.sh '[["await", [{awaited}], 30], ["settle", 0.08, 5]]'"""
    )


DESKTOP_PLAYGROUND = Task(
    "desktop_playground",
    "A desktop with a terminal. Try what you like, and submit when you are done.",
    setup=(launch("xterm -geometry 80x24+40+40", "xterm"),),
)
