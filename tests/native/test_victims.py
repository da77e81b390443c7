"""Each victim is forked while it waits, and its forks again: source, children and grandchildren all check themselves.

A victim is a small program in three acts (see victims/victim.h), named by the one behaviour it is about.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bunshin_gym import UnsupportedResource, Workspace, WorkspaceError, WorkspaceSpec
from native import kinds, play

pytestmark = [pytest.mark.engine("native"), pytest.mark.needs("gcc")]

VICTIMS = play.all_victims()
Record = Callable[[str, object], None]

# Where a victim needs another workspace than the others.
SPECS: dict[str, dict[str, Any]] = {
    "credentials": {"capabilities": "container"},
    "thread_with_a_user_of_its_own": {"capabilities": "container"},
    "processes_300": {"pids_limit": 2048},
    "threads_1000": {"pids_limit": 2048},
    "capabilities_of_a_process": {"capabilities": "container"},
    "chroot_kept": {"capabilities": "container"},
    "inotify_numbers_with_gaps": {},  # alone: it watches directories that belong to everybody
    "mounts_in_memory": {"capabilities": "all"},
    "mounts_that_bind": {"capabilities": "all"},
}

# Programs that a victim plays with.
PROGRAMS: dict[str, tuple[str, ...]] = {"tmux_with_panes": ("tmux",), "script_in_a_terminal": ("script", "vim")}
MISSING = {name for name, programs in PROGRAMS.items() if not all(shutil.which(program) for program in programs)}

# Known to fail, and why. The tests are strict: one that passes must be taken off this list.
KNOWN_FAILURES: dict[str, str] = {}
# Of root alone: an ordinary user's workspace has one user.
KNOWN_FAILURES_OF_ROOT: dict[str, str] = {}

# Refused by name, for now: the words that the refusal must hold.
REFUSED: dict[str, str] = {
    "descriptor_table_shared": "a descriptor table in common with pid",
    "directory_shared": "a working directory in common with pid",
    "local_descriptor_table": "a local descriptor table",
    "directory_shared_across_exec": "a working directory in common with pid",
    "cwd_with_a_long_path": "a cwd with a path of more than 4096 bytes",
    "executable_not_executable": "an executable that may not be executed any more",
    "memory_shared_by_clone": "memory in common with pid",
    "memory_locked_up_to_its_limit": "locked memory up to its limit",
    "posix_message_notification": "a notification by the message queue victim-tells",
    "netlink_answer_unread": "a netlink socket with messages not read yet",
    "seccomp_filter_of_its_own": "a seccomp filter of its own",
    "thread_with_a_directory_of_its_own": "with a working directory of its own",
    "thread_with_a_filter_of_its_own": "with a seccomp filter of its own",
    "thread_with_a_user_of_its_own": "with credentials of its own",
    "traced_child": "a debugger's hold",
    "tcp_urgent_byte": "a TCP connection with an urgent byte under way",
    "unix_pending_client_with_a_name": "whose client has a name of its own",
    "vfork_in_progress": "a child in vfork",
}


# Kept since this kernel; refused by name before, in these words.
SINCE: dict[str, tuple[tuple[int, int], str]] = {
    "main_thread_ended": ((6, 9), "a main thread that has ended while others run"),
    "main_thread_ended_of_a_child": ((6, 9), "a main thread that has ended while others run"),
}
KERNEL = tuple(int(number) for number in os.uname().release.split(".")[:2])
REFUSED |= {name: words for name, (since, words) in SINCE.items() if since > KERNEL}
# Not played before this kernel, and why not.
NOT_BEFORE: dict[str, tuple[tuple[int, int], str]] = {
    "system_calls_dispatched_to_itself": ((6, 4), "what it set cannot be read: the seal fails, and says so"),
    "pidfds_of_the_dead_and_of_threads": ((6, 9), "the kernel has no pidfds of threads"),
    "unix_urgent_byte": ((6, 12), "urgent bytes of unix sockets are read in another way"),
    "memory_locked_from_now_on_when_touched": ((6, 12), "fails there, not understood yet"),
    "udp_queue_of_many_senders": ((6, 12), "in a second generation datagrams are missing: not understood yet"),
    "udp_datagrams_queued": ((6, 12), "in a second generation datagrams are missing: not understood yet"),
    # Handles of what lies on overlays are newer: there a watch is not always found, and refused by name then.
    **dict.fromkeys(
        (
            "inotify_in_a_stream_of_events",
            "inotify_numbers_with_gaps",
            "inotify_of_a_whole_tree",
            "inotify_of_tools",
            "inotify_of_what_moved_and_went",
            "inotify_readers_waiting",
            "inotify_watch",
            "renamed_open_file",
            "file_with_two_names_open",
        ),
        ((6, 6), "may be refused by name"),
    ),
}
TOO_OLD = {name: why for name, (since, why) in NOT_BEFORE.items() if since > KERNEL}


def known_failure(name: str) -> str:
    more = KNOWN_FAILURES_OF_ROOT if os.geteuid() == 0 else {}
    return KNOWN_FAILURES.get(name, "") or more.get(name, "")


def cases(kept: bool) -> list[Any]:
    chosen = []
    for victim in VICTIMS:
        if (victim.name not in REFUSED) != kept:
            continue
        reason = known_failure(victim.name)
        marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
        if victim.name in PROGRAMS:
            marks.append(pytest.mark.needs(*PROGRAMS[victim.name]))
        if victim.name in TOO_OLD:
            marks = [pytest.mark.skip(reason=f"needs a newer kernel: {TOO_OLD[victim.name]}")]
        chosen.append(pytest.param(victim, id=victim.name, marks=marks))
    return chosen


@contextlib.contextmanager
def stage(victim: play.Victim) -> Iterator[Workspace]:
    with Workspace(WorkspaceSpec(engine="native", **SPECS.get(victim.name, {}))) as workspace:
        yield workspace


GROUPS = [[victim for victim in VICTIMS if not {victim.name} & {*SPECS, *TOO_OLD, *MISSING}][i::8] for i in range(8)]
GROUPS += [[victim] for victim in VICTIMS if victim.name in SPECS]


@pytest.mark.thorough
@pytest.mark.parametrize("group", GROUPS, ids=range(len(GROUPS)))
def test_victims_that_nobody_forks_are_well(group: list[play.Victim]) -> None:
    """Else it is the victim that is wrong. Many share a workspace here: they do not know of each other."""
    with stage(group[0]) as workspace:
        begun = time.monotonic()
        places = {victim.name: play.start(workspace, victim) for victim in group}
        for place in places.values():
            play.say_go(workspace, place, time.monotonic() - begun)
        words = {name: play.hear([("source", workspace)], place) for name, place in places.items()}
        assert not any(words.values()), "\n".join(f"{name}: {word['source']}" for name, word in words.items() if word)


@pytest.mark.parametrize("victim", cases(kept=True))
def test_a_victim_is_well_in_every_fork(victim: play.Victim, record_property: Record) -> None:
    record_property(f"victim {victim.name}", "kept")
    with contextlib.ExitStack() as open_ones, stage(victim) as source:

        def keep(child: Workspace | WorkspaceError) -> Workspace:
            if isinstance(child, WorkspaceError):
                raise child
            return open_ones.enter_context(child)

        place = play.start(source, victim)
        begun = time.monotonic()
        with source.snapshot() as snapshot:
            first, second = (keep(child) for child in snapshot.fork(2))
        third = keep(play.one_fork(first))
        fourth = keep(play.one_fork(third))
        took = time.monotonic() - begun
        who = ["source", "child", "child forked again", "grandchild", "great-grandchild"]
        wrong = play.verdicts(list(zip(who, [source, second, first, third, fourth], strict=True)), place, took)
        assert not wrong, "\n".join(f"{name}: {word}" for name, word in wrong.items())


TOGETHER = [
    victim
    for victim in VICTIMS
    if not {victim.name} & {*SPECS, *REFUSED, *TOO_OLD, *MISSING} and not known_failure(victim.name)
]


@pytest.mark.thorough
@pytest.mark.parametrize("group", [TOGETHER[i::10] for i in range(10)], ids=range(10))
def test_victims_in_one_workspace_are_well_in_every_fork(group: list[play.Victim], record_property: Record) -> None:
    """Many kinds at once, which is also how a slow machine goes through all of them."""
    for victim in group:
        record_property(f"victim {victim.name}", "kept")
    with contextlib.ExitStack() as open_ones, stage(group[0]) as source:
        places = {victim.name: play.start(source, victim) for victim in group}
        begun = time.monotonic()
        child = open_ones.enter_context(play.one_fork(source))
        grandchild = open_ones.enter_context(play.one_fork(child))
        stages = [("source", source), ("child", child), ("grandchild", grandchild)]
        for _, workspace in stages:
            for place in places.values():
                play.say_go(workspace, place, time.monotonic() - begun)
        words = {name: play.hear(stages, place) for name, place in places.items()}
        wrong = [f"{name}, {who}: {word}" for name, found in words.items() for who, word in found.items()]
        assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("victim", cases(kept=False))
def test_a_victim_that_cannot_be_forked_is_refused_by_name_and_stays_well(
    victim: play.Victim, record_property: Record
) -> None:
    record_property(f"victim {victim.name}", "refused by name")
    with stage(victim) as source:
        place = play.start(source, victim)
        with pytest.raises(UnsupportedResource) as caught:
            source.snapshot()
        error = caught.value
        assert REFUSED[victim.name] in str(error), error
        assert error.reason in str(error)
        assert error.pid > 1 and error.comm
        assert not play.verdicts([("source", source)], place, 0.0)


def test_every_name_in_the_tables_is_a_victim() -> None:
    names = {victim.name for victim in VICTIMS}
    for table in (SPECS, KNOWN_FAILURES, KNOWN_FAILURES_OF_ROOT, REFUSED, SINCE, NOT_BEFORE):
        assert set(table) <= names, set(table) - names


def test_the_table_of_kinds_holds_every_victim_and_agrees() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", kinds.PAGE.read_text(), re.M))
    assert set(rows) == {victim.name for victim in VICTIMS}, "docs/kinds.md is behind: see tests/native/kinds.py"
    for name, first in rows.items():  # the first column is the newest kernel
        refused = name in REFUSED and not (name in SINCE and SINCE[name][0] > KERNEL)
        assert first in ("", kinds.REFUSED if refused else kinds.KEPT), name


def test_every_victim_says_what_it_is_about() -> None:
    for victim in VICTIMS:
        assert victim.about.endswith((".", "?")) and len(victim.about) > 20, victim.path


ORDINARY_ID = 65534


@pytest.mark.thorough
@pytest.mark.needs("root", "setpriv")
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_same_as_an_ordinary_user() -> None:
    """The suite again, in a copy of the tree that the user can read, with a state directory of his own."""
    here = Path(__file__).resolve().parents[2]
    scratch = play.scratch()
    try:
        tree, home = scratch / "tree", scratch / "home"
        ignore = shutil.ignore_patterns("__pycache__", "*.o", ".git", ".venv", ".*_cache", ".hypothesis")
        for name in ("bunshin_gym", "docs", "envs", "tests", "native"):
            shutil.copytree(here / name, tree / name, symlinks=True, ignore=ignore)
        shutil.copy(here / "pyproject.toml", tree)
        home.mkdir()
        os.chown(home, ORDINARY_ID, ORDINARY_ID)
        user = ["setpriv", f"--reuid={ORDINARY_ID}", f"--regid={ORDINARY_ID}", "--clear-groups"]
        pytest_arguments = [
            "-q",
            "-p",
            "no:cacheprovider",
            "--no-header",
            "-k",
            "victim",
            "tests/native/test_victims.py",
        ]
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "TMPDIR": str(home),
            "BUNSHIN_STATE_DIR": str(home),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        done = subprocess.run(
            [*user, sys.executable, "-m", "pytest", *pytest_arguments],
            cwd=tree, env=environment, capture_output=True, text=True, timeout=800,
        )  # fmt: skip
        assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
        assert " passed" in done.stdout, done.stdout[-2000:]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
