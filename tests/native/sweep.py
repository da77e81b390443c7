"""Every system call of a fork or a seal, made to fail once: sweep.py fork|seal|killed PART PARTS BUILD. A line each.

It runs in a process of its own, with a keeper that the injector (injector.c) watches. First the calls of one fork are
listed; then, for every place in the code that makes one, the first and the last of its calls fail, one a fork (of
those that all tracing goes through, some between as well); with "killed", who makes the call is killed instead. Each
time there must be one clear error, or a fork that is right; and the source must be as it was. What a fork must be is
what random_tree.py says of itself.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from bunshin_gym import Workspace

HERE = Path(__file__).parent
CALLS_LOGGED = 65536
SLOW = "it took very long"
LIMIT = 12.0  # seconds that a fork may take when a call fails: an error must not wait for a deadline


class Call(ctypes.Structure):
    _fields_ = [("number", ctypes.c_int32), ("pid", ctypes.c_int32), ("place", ctypes.c_uint64)]


class Board(ctypes.Structure):
    """struct board of injector.c."""

    _fields_ = [
        ("on", ctypes.c_uint32), ("fired", ctypes.c_uint32), ("logged", ctypes.c_uint32), ("number", ctypes.c_int32),
        ("place", ctypes.c_uint64), ("skip", ctypes.c_int32), ("error", ctypes.c_int32), ("action", ctypes.c_int32),
        ("pid", ctypes.c_int32), ("spared", ctypes.c_int32 * 2), ("log", Call * CALLS_LOGGED),
    ]  # fmt: skip


FAIL, KILL, STOP = range(3)
# They cannot fail: umask, getpid, geteuid, setfsuid, and brk, which answers with the old end instead.
NEVER_FAILS = {95, 39, 107, 122, 12}
TRACING = {101, 247}  # ptrace and waitid: one place in the C library, called for everything that is done to a process
THROUGH_ONE = 12  # so many of their calls fail


def prepare(folder: Path, build: Path) -> Board:
    """Puts the injector in place of bunshin-init. To be called before the engine is first used."""
    program = folder / "bunshin-init"
    command = ["gcc", "-std=gnu17", "-O1", "-Wall", "-Wextra", "-Werror", "-o", str(program), str(HERE / "injector.c")]
    subprocess.run(command, check=True)
    (folder / "libbunshin.so").symlink_to(build / "libbunshin.so")
    (folder / "real").symlink_to(build / "bunshin-init")
    os.environ["BUNSHIN_NATIVE_DIR"] = str(folder)
    with open(folder / "board", "wb+") as file:
        file.truncate(ctypes.sizeof(Board))
        return Board.from_buffer(mmap.mmap(file.fileno(), ctypes.sizeof(Board)))


def arm(board: Board, number: int = -1, place: int = 0, skip: int = 0, action: int = FAIL) -> None:
    """From now on calls are listed, and one of them is acted upon."""
    board.on = board.fired = board.logged = board.pid = 0
    board.number, board.place, board.skip, board.action, board.error = number, place, skip, action, errno.EIO
    board.on = 1


def disarm(board: Board, but: Collection[int] = ()) -> list[tuple[int, int]]:
    """Stops counting. The calls that were made, in order: number and place; not those of the processes `but`."""
    board.on = 0
    return [(call.number, call.place) for call in board.log[: board.logged] if call.pid not in but]


def child_of(parent: int, name: str) -> int:
    """The one process of that name below `parent`, once there is but one."""
    end = time.monotonic() + 10
    while len(found := children_of(parent, name)) != 1 and time.monotonic() < end:
        time.sleep(0.01)  # a workspace that went on as a fork has two for a moment
    (pid,) = found
    return pid


def children_of(parent: int, name: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            comm, _, rest = path.read_text(errors="replace").partition("(")[2].rpartition(")")
        except OSError:
            continue
        if comm == name and int(rest.split()[1]) == parent:
            found.append(int(path.parent.name))
    return found


def skips(number: int, count: int) -> set[int]:
    between = range(0, count, count // THROUGH_ONE) if number in TRACING and count >= 100 else ()
    return {0, count - 1, *between}


def rules(calls: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """(number, place, how many to let pass): the first and the last call of each place, some between of the busiest."""
    counts = Counter(calls)
    return [
        (number, place, skip)
        for (number, place), count in counts.items()
        if number not in NEVER_FAILS
        for skip in sorted(skips(number, count))
    ]


class Sweep:
    """One source, forked or sealed once a rule."""

    def __init__(self, board: Board, what: str) -> None:
        self.board, self.what = board, what
        self.open()

    def open(self) -> None:
        from bunshin_gym import Workspace, WorkspaceSpec  # only now: see prepare()

        self.source = Workspace(WorkspaceSpec(pids_limit=None))
        self.source.write_file("/tmp/tree.py", (HERE / "random_tree.py").read_bytes())
        program = "python3 /tmp/tree.py 7 4 every-kind >/tmp/told 2>/tmp/err </dev/null"
        told = self.source.run(f"mkfifo /tmp/told; {program} & read x </tmp/told; echo $x; n=5", timeout=30)
        assert told.output == "ready\n", self.source.run("cat /tmp/err").output
        self.want = self.describe(self.source)
        self.snapshot = self.source.snapshot()
        # Their deaths are the death of the source, whatever a fork does: when one is killed, it is not one of these.
        keeper = child_of(os.getpid(), "bunshin-keeper")
        self.spared = (keeper, child_of(keeper, "bunshin-init")) if self.what == "killed" else ()

    def describe(self, workspace: Workspace) -> str:
        from bunshin_gym import ToolCall

        script = "rm -f /tmp/tree-answers/*; cat /tmp/tree-ask > /dev/null; cat /tmp/tree-answers/*"
        asked = workspace.call(ToolCall("exec", {"argv": ["bash", "-c", script]}), 20)
        text = asked.output if asked.exit_code == 0 else f"{asked.exit_reason} {asked.exit_code}: {asked.output}"
        told = workspace.run("echo $n", timeout=20)
        text += told.output if told.exit_code == 0 else f"the shell: {told.exit_reason} {told.exit_code}: {told.output}"
        return text if asked.exit_code == told.exit_code == 0 else text + self.look(workspace)

    def look(self, workspace: Workspace) -> str:
        """What each process of a workspace that does not answer is about."""
        from bunshin_gym import ToolCall

        script = """cd /proc; for p in [0-9]*; do
            echo "$p ($(tr '\\0' ' ' <$p/cmdline)) at $(cat $p/wchan), $(cat $p/syscall)" \\
                "$(grep -E '^(State|TracerPid|Sig...):' $p/status)"
        done"""
        return "\n" + workspace.call(ToolCall("exec", {"argv": ["bash", "-c", script]}), 10).output

    def attempt(self) -> tuple[str, str]:
        """Forks once: the error that was raised, and what is wrong with the fork."""
        from bunshin_gym import ForkError, WorkspaceError

        try:
            if self.what == "seal":
                self.source.snapshot().close()
                return "", ""
            (child,) = self.snapshot.fork(1)
            if isinstance(child, WorkspaceError):
                raise child
        except ForkError as error:
            return str(error), "" if "\n" not in str(error) and len(str(error)) > 20 else "an error that says nothing"
        except Exception as error:
            return repr(error), "another error"
        finally:
            self.board.on = 0
        with child:
            seen = self.describe(child)
            if self.what == "killed" and not child.alive:
                return "the fork was made, and then killed", ""
            return "", first_difference(self.want, seen)

    def calls(self) -> list[tuple[int, int]]:
        arm(self.board)
        said, wrong = self.attempt()
        assert not said and not wrong, f"without a fault: {said} {wrong}"
        return disarm(self.board, self.spared)

    def play(self, number: int, place: int, skip: int) -> dict[str, object]:
        action = KILL if self.what == "killed" else FAIL
        self.board.spared[:] = self.spared or (0, 0)
        arm(self.board, number, place, skip, action)
        begin = time.monotonic()
        said, wrong = self.attempt()
        took = time.monotonic() - begin
        if not wrong:
            try:
                wrong = first_difference(self.want, self.describe(self.source))
                wrong = wrong and f"the source: {wrong}"
            except Exception as error:
                wrong = f"the source: {error!r}"
        if not wrong and took > LIMIT:
            wrong = SLOW
        record = {"call": number, "place": f"{place:#x}", "skip": skip, "action": action, "fired": self.board.fired}
        if "source" in wrong or wrong == "another error":
            self.close()
            self.open()
        return record | {"said": said, "took": round(took, 3), "wrong": wrong}

    def close(self) -> None:
        self.snapshot.close()
        self.source.close()


def main(what: str, part: int, parts: int, board: Board) -> None:
    sweep = Sweep(board, what)
    calls = sweep.calls()
    todo = rules(calls)[part::parts]
    print(json.dumps({"calls": len(calls), "rules": len(todo)}), flush=True)
    for number, place, skip in todo:
        record = sweep.play(number, place, skip)
        if record["wrong"] == SLOW:  # once more: a full machine is told apart from a wait for a deadline
            again = sweep.play(number, place, skip)
            record = again | {"at_first": record["wrong"]}
        print(json.dumps(record), flush=True)
    sweep.calls()  # without a fault, all works as ever
    sweep.close()
    print(json.dumps({"done": True}), flush=True)


def first_difference(want: str, seen: str) -> str:
    if "TracerPid" in seen:
        return seen[-6000:]
    for one, other in zip(want.splitlines(), seen.splitlines(), strict=False):
        if one != other:
            same = (n for n, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1])
            at = max(0, next(same, 0) - 20)
            return f"{other[at : at + 150]!r} instead of {one[at : at + 150]!r}"
    return "" if want == seen else f"{len(seen)} characters instead of {len(want)}: {seen[-200:]!r}"


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parents[1]))
    with tempfile.TemporaryDirectory(prefix="sweep-") as made:
        main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), prepare(Path(made), Path(sys.argv[4])))
