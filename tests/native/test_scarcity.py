"""Law 7 where something runs out: memory, processes, descriptors, disk, time. One clear error; the source runs on."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bunshin_gym import ForkError, ToolCall, Workspace, WorkspaceError, WorkspaceSpec
from bunshin_gym.engines.native_features import cgroup_support
from native import play, test_deadlines

pytestmark = [pytest.mark.engine("native")]


def hold(workspace: Workspace, megabytes: int, shared: bool) -> None:
    code = (
        f"import mmap, os; m = mmap.mmap(-1, {megabytes} << 20, flags=mmap.MAP_{'SHARED' if shared else 'PRIVATE'})\n"
        f"for at in range(0, {megabytes} << 20, 4096): m[at:at + 8] = os.urandom(8)\n"
    )
    result = workspace.call(ToolCall("python", {"code": code}), 60)
    assert result.exit_code == 0, result.output


@pytest.mark.skipif(cgroup_support("memory") == "none", reason="needs a memory cgroup that can be written")
@pytest.mark.parametrize("shared", [False, True], ids=["private", "shared"])
def test_a_seal_that_would_pass_the_memory_limit(shared: bool) -> None:
    """The page store is charged to the workspace: the kernel would kill one of those that are to be kept."""
    with Workspace(WorkspaceSpec(memory_limit="200M")) as source:
        source.run("n=5")
        hold(source, 150, shared)
        for _ in range(2):
            with pytest.raises(ForkError, match="memory limit"):
                source.snapshot()
            assert source.run("echo $n").output == "5\n"
            assert source.call(ToolCall("python", {"code": "len(m) >> 20"})).output == "150\n"
        source.call(ToolCall("python", {"code": "m.close(); del m"}))
        (child,) = source.fork(1)
        assert isinstance(child, Workspace), child
        with child:
            assert child.run("echo $n").output == "5\n"


@pytest.mark.parametrize("spare", range(4))
def test_the_limit_of_processes_is_reached(spare: int) -> None:
    """A fork needs no more than its source has, and at times a helper: an error, or a fork that is right."""
    crowd = f"""
import os, time
pids = []
try:
    while len(pids) < 100:
        pids.append(os.fork())
        if not pids[-1]:
            time.sleep(100000)
except OSError:
    pass
for pid in pids[:{spare}]:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
os.mkfifo("/tmp/full")
time.sleep(100000)
"""
    with Workspace(WorkspaceSpec(pids_limit=20)) as source:
        source.write_file("/tmp/crowd.py", crowd.encode())
        source.run("python3 /tmp/crowd.py & n=5")
        deadline = time.monotonic() + 20
        while not source.run("[ -p /tmp/full ] && echo full").output:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        count = len(source.processes())
        for child in source.fork(2):
            if isinstance(child, WorkspaceError):
                assert isinstance(child, ForkError) and "\n" not in str(child)
                continue
            with child:
                assert len(child.processes()) == count and child.run("echo $n").output == "5\n"
        assert len(source.processes()) == count and source.run("echo $n").output == "5\n"


@pytest.mark.parametrize("limit", [3, 8, 64])
def test_programs_with_few_descriptors_allowed(limit: int) -> None:
    """They may hold higher ones than they could open now; those stay open, and the limit stays low."""
    source = f"""
import os, resource, time
kept = [os.open("/etc/passwd", os.O_RDONLY) for _ in range(30)]
os.dup2(kept[0], 200)
resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))
os.mkfifo("/tmp/asked") if not os.path.exists("/tmp/asked") else None
while not os.path.exists("/tmp/go"):
    time.sleep(0.01)
os.lseek(200, 0, 0)
assert os.read(200, 4) == b"root" and resource.getrlimit(resource.RLIMIT_NOFILE) == ({limit}, {limit})
os.rename("/tmp/go", "/tmp/well")
"""
    with Workspace(WorkspaceSpec()) as workspace:
        workspace.write_file("/tmp/few.py", source.encode())
        workspace.run("python3 /tmp/few.py 2>/tmp/few.err & until [ -p /tmp/asked ]; do sleep 0.01; done", timeout=30)
        (child,) = workspace.fork(1)
        assert isinstance(child, Workspace), child
        with child:
            for one in (workspace, child):
                told = one.run("touch /tmp/go; for i in $(seq 500); do [ -e /tmp/well ] && break; sleep 0.01; done")
                assert one.run("test -e /tmp/well || cat /tmp/few.err").output == "", told.output


OWNER = """
import resource, sys
from bunshin_gym import Workspace, WorkspaceSpec, WorkspaceError
resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400))
with Workspace(WorkspaceSpec()) as source:
    source.run("n=5")
    children, errors = [], []
    snapshot = source.snapshot()
    for _ in range(500):
        try:
            (child,) = snapshot.fork(1)
        except (WorkspaceError, OSError) as error:
            errors.append(error)
            break
        if isinstance(child, WorkspaceError):
            errors.append(child)
            break
        children.append(child)
    assert errors and "Too many open files" in str(errors[0]), errors
    assert len(children) > 30
    for child in children:
        child.close()
    assert source.run("echo $n").output == "5\\n"
    (child,) = source.fork(1)
    assert child.run("echo $n").output == "5\\n"
    child.close()
print("well")
"""


def test_the_owner_has_no_descriptors_left() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", OWNER], cwd=root, capture_output=True, text=True, timeout=120)
    assert done.stdout == "well\n", done.stderr[-2000:]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,nr_inodes=400", "none", str(place)], check=False)
    if mounted.returncode:
        pytest.skip("needs the right to mount a small file system")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


FULL = """
import os, sys
from bunshin_gym import Workspace, WorkspaceSpec, WorkspaceError
with Workspace(WorkspaceSpec()) as source:
    source.run("n=5")
    children, error = [], None
    for _ in range(200):
        try:
            (child,) = source.fork(1)
        except (WorkspaceError, OSError) as caught:
            error = caught
            break
        if isinstance(child, WorkspaceError):
            error = child
            break
        children.append(child)
    assert error is not None and "No space left" in str(error), (error, len(children))
    assert source.run("echo $n").output == "5\\n"
    for child in children:
        assert child.run("echo $n").output == "5\\n"
        child.close()
print("well")
"""


def test_no_room_is_left_for_layers(small_disk: Path) -> None:
    environment = {**os.environ, "BUNSHIN_STATE_DIR": str(small_disk)}
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", FULL]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=200)
    assert done.stdout == "well\n", done.stderr[-2000:]
    assert not list(small_disk.iterdir())


def test_a_process_that_cannot_be_stopped_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parent in vfork cannot be stopped while its child neither calls exec nor ends."""
    monkeypatch.setattr("bunshin_gym.engines.native_workspace.SEAL_TIMEOUT", 3.0)
    victim = next(victim for victim in play.all_victims() if victim.name == "vfork_in_progress")
    with Workspace(WorkspaceSpec()) as source:
        source.run("n=5")
        place = play.start(source, victim)
        begin = time.monotonic()
        with contextlib.suppress(ForkError):  # kept or refused, but not for ever
            source.snapshot().close()
        assert time.monotonic() - begin < 8
        assert source.run("echo $n").output == "5\n"
        assert not play.verdicts([("source", source)], place, 5.0)


def set_descriptors(pid: int, limit: int) -> int:
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, hard))
    return soft


def pid_1_of_all() -> set[int]:
    found = set()
    for pid in test_deadlines.children(test_deadlines.keeper()):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text() == "bunshin-init\n":
                found.add(pid)
    return found


@pytest.mark.parametrize(("who", "step"), [("owner", 1), ("keeper", 5), ("inside", 3)])
def test_no_descriptors_are_left_in_the_middle(who: str, step: int) -> None:
    """At each place where one is needed: an error that says so, or success; and the source is let go at once."""
    Workspace(WorkspaceSpec()).close()
    others = pid_1_of_all()
    said = []
    with Workspace(WorkspaceSpec()) as source:
        source.run("n=5; sleep 1000 &")
        with source.snapshot() as snapshot:
            for spare in range(0, 12 * step, step):
                while len(own := pid_1_of_all() - others) != 1:
                    time.sleep(0.005)
                pid = {"owner": os.getpid(), "keeper": test_deadlines.keeper(), "inside": own.pop()}[who]
                for work in (source.snapshot, lambda: snapshot.fork(1)[0]):
                    before = set_descriptors(pid, len(os.listdir(f"/proc/{pid}/fd")) + spare)
                    outcome: object
                    try:
                        outcome = work()
                    except ForkError as error:
                        outcome = error
                    finally:
                        with contextlib.suppress(ProcessLookupError):  # the source went on in a fork
                            set_descriptors(pid, before)
                    if isinstance(outcome, Exception):
                        assert isinstance(outcome, ForkError), outcome
                        said.append(str(outcome))
                    else:
                        outcome.close()  # type: ignore[attr-defined]
                    assert source.run("echo $n", timeout=5).output == "5\n"
                    if who == "inside":
                        break
    assert sum("Too many open files" in text or "limit of open files" in text for text in said) > 3, said
