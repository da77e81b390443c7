"""The table of kinds in docs/kinds.md, from what test runs said: junit files of test_victims.py, one a column.

    python -m pytest tests/native/test_victims.py --junitxml=here.xml
    PYTHONPATH=.:tests python -m native.kinds "Linux 6.18, root=here.xml" …

Every victim test says in its record what became of it (`kept`, `refused by name`); what failed, or is expected to, is
`lost`, and then nothing is written. A column may come from a run of a part: what that does not speak of stays empty.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from native import play

PAGE = Path(__file__).resolve().parents[2] / "docs/kinds.md"
KEPT, REFUSED, LOST = "kept", "refused by name", "lost"

# By what a name begins with; the first that fits.
FAMILIES = {
    title: tuple(heads.split())
    for title, heads in {
        "Internet sockets": "tcp_ udp_ inet listener_ outside_ netlink_ packet_",
        "Unix sockets": "unix_",
        "IPC": "sysv_ posix_message posix_named posix_shared shm_",
        "Terminals": "pty_ bash_job terminal_ tmux_ tty_",
        "Time": "alarm interval_ posix_timers sleep_ timerfd select_ poll_ epoll_ late_ clock_ time_",
        "Memory": "memory_ memfd mapping madvise many_map guard heap locked_mem private_ shared_ sparse_res stack"
        " executable_mem read_only thread_local deep_stack mlock pages_ huge protection_ reservation wiped",
        "Files": "file deleted director locks inotify fifo open_ offset nameless renamed device path_ proc_files"
        " sparse_file cwd chroot mount bind_ tmpfs overlay umask lease namespace descriptors_ dnotify",
        "Pipes and small descriptors": "pipe eventfd signalfd pidfd read_of subprocesses",
        "Signals": "signal blocked realtime sig in_a_signal pause alternate read_with_a",
        "Threads and locks": "thread futex mutex condition robust names_of main_thread",
    }.items()
}
OTHER = "Processes"


HEAD = """# What a fork keeps, kind by kind

One row a program of `tests/native/victims`: it is forked while it waits, its forks again, and source, child and later
generations all check themselves. {count} programs; {kept} of them are kept wherever they were tried. `refused by name`:
the fork is refused before anything is changed, and the source runs on. An empty field was not tried there. Written by
`tests/native/kinds.py` from what the tests said."""


def family(name: str) -> str:
    return next((title for title, heads in FAMILIES.items() if name.startswith(heads)), OTHER)


def column(path: Path) -> dict[str, str]:
    """What became of each victim, by its name. Whoever failed or was expected to fail is `lost`."""
    found: dict[str, str] = {}
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        bad = any(case.find(word) is not None for word in ("failure", "error"))
        skipped = case.find("skipped")
        expected = skipped is not None and "xfail" in (skipped.get("type") or "")
        entries = [entry for entry in case.iter("property") if (entry.get("name") or "").startswith("victim ")]
        for entry in entries:
            name = (entry.get("name") or "").removeprefix("victim ")
            word = LOST if bad or expected else entry.get("value") or LOST
            if len(entries) == 1:
                found[name] = word
            elif word != LOST:  # where many share a workspace, it is not said whose failure it was
                found.setdefault(name, word)
    return found


def page(columns: dict[str, dict[str, str]]) -> str:
    victims = {victim.name: victim for victim in play.all_victims()}
    kept = sum(all(column.get(name, KEPT) == KEPT for column in columns.values()) for name in victims)
    lines = [HEAD.format(count=len(victims), kept=kept)]
    for title in [*FAMILIES, OTHER]:
        names = [name for name in victims if family(name) == title]
        if not names:
            continue
        lines += [
            "",
            f"## {title}",
            "",
            "| kind | " + " | ".join(columns) + " | what is checked |",
            "|---" * (len(columns) + 2) + "|",
        ]
        for name in names:
            about = victims[name].about.replace("|", "\\|")
            lines.append(
                f"| `{name}` | " + " | ".join(column.get(name, "") for column in columns.values()) + f" | {about} |"
            )
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    columns = {label: column(Path(path)) for label, _, path in (argument.rpartition("=") for argument in arguments)}
    lost = [f"{label}: {name}" for label, found in columns.items() for name, word in found.items() if word == LOST]
    if lost or not columns:
        print("\n".join(["lost, nothing is written:", *lost]) if columns else __doc__, file=sys.stderr)
        return 1
    PAGE.write_text(page(columns))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
