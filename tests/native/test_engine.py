"""The engine as a whole: generations, births and deaths under a seal, refusals, crowds, and an owner who is killed."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bunshin_gym import ForkError, ToolCall, UnsupportedResource, Workspace, WorkspaceError, WorkspaceSpec
from native import play

pytestmark = [pytest.mark.engine("native")]


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    with Workspace(WorkspaceSpec(engine="native")) as made:
        yield made


def forks(workspace: Workspace, n: int) -> list[Workspace]:
    children = workspace.fork(n)
    for child in children:
        if isinstance(child, WorkspaceError):
            raise child
    return [child for child in children if isinstance(child, Workspace)]


def background(workspace: Workspace, name: str, source: str, *arguments: str) -> int:
    """Starts a Python program that goes on in the background and says "ready" first. Returns its pid."""
    path = f"/tmp/{name}.py"
    workspace.write_file(path, source.encode())
    script = f"python3 {path} {' '.join(arguments)} </dev/null >/tmp/{name}.out 2>/tmp/{name}.err & echo $!"
    result = workspace.call(ToolCall("exec", {"argv": ["bash", "-c", script]}), 30)
    deadline = time.monotonic() + 20
    while "ready" not in play.read(workspace, f"/tmp/{name}.out"):
        assert time.monotonic() < deadline, workspace.run(f"cat /tmp/{name}.err").output
        time.sleep(0.01)
    return int(result.output)


# ---- generations


def test_twenty_generations(workspace: Workspace) -> None:
    """Each generation forks the last one; shell, interpreter, a background counter and files all go on counting."""
    background(workspace, "counter", COUNTER)
    workspace.run("n=0; mkdir /tmp/g")
    workspace.call(ToolCall("python", {"code": "data = bytearray(1 << 20); log = []"}), 30)
    current = workspace
    try:
        for generation in range(1, 21):
            (child,) = forks(current, 1)
            if current is not workspace:
                current.close()
            current = child
            assert current.run("n=$((n+1)); echo $n > /tmp/g/$n; cat /tmp/g/* | wc -l").output == f"{generation}\n"
            code = (
                f"data[{generation} * 4096] = {generation}; log.append({generation}); sum(data) == sum(log), len(log)"
            )
            result = current.call(ToolCall("python", {"code": code}), 30)
            assert result.output == f"(True, {generation})\n", result.output
            assert ask_counter(current) > 0
    finally:
        current.close()


COUNTER = """
import itertools, os, threading, time
count = itertools.count()
value = 0
def run():
    global value
    for value in count:
        time.sleep(0.001)
threading.Thread(target=run, daemon=True).start()
os.mkfifo("/tmp/ask"); os.mkfifo("/tmp/answer")
print("ready", flush=True)
while True:
    with open("/tmp/ask") as ask:
        ask.read()
    with open("/tmp/answer", "w") as answer:
        before = value
        while value < before + 3:
            time.sleep(0.001)
        answer.write(str(value - before))
"""


def ask_counter(workspace: Workspace) -> int:
    return int(workspace.run("echo > /tmp/ask; cat /tmp/answer", timeout=20).output)


def test_forks_of_every_ancestor_still_work(workspace: Workspace) -> None:
    """Snapshots of five generations, forked in any order after all their workspaces are gone."""
    with contextlib.ExitStack() as stack:
        snapshots = []
        current = workspace
        current.run("trail=0")
        for n in range(1, 6):
            snapshot = stack.enter_context(current.snapshot())
            snapshots.append(snapshot)
            (child,) = snapshot.fork(1)
            assert isinstance(child, Workspace)
            current.close()
            current = stack.enter_context(child)
            current.run(f"trail=$trail,{n}; echo {n} >> /tmp/trail")
        current.close()
        for n in random.Random(3).sample(range(5), 5):
            (child,) = snapshots[n].fork(1)
            assert isinstance(child, Workspace)
            with child:
                want = ",".join(str(i) for i in range(n + 1))
                files = "".join(f"{i}\n" for i in range(1, n + 1))
                assert child.run("echo $trail; cat /tmp/trail 2>/dev/null").output == f"{want}\n{files}"


# ---- births and deaths under a seal

STORM = """
import os, random, sys, threading, time, subprocess
seed = int(sys.argv[1])
random.seed(seed)
print("ready", flush=True)
rounds = 0
def threads():
    while True:
        t = threading.Thread(target=time.sleep, args=(0.0001,))
        t.start(); t.join()
threading.Thread(target=threads, daemon=True).start()
while True:
    pids = []
    for _ in range(random.randint(1, 4)):
        pid = os.fork()
        if pid == 0:
            if random.random() < 0.5 and os.fork() == 0:
                if random.random() < 0.5:
                    os.setsid()
                time.sleep(random.random() * 0.003)
                os._exit(0)
            if random.random() < 0.2:
                os.execv("/bin/true", ["true"])
            os._exit(7)
        pids.append(pid)
    for pid in pids:
        got, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if got != pid or code not in (0, 7):
            open("/tmp/broken", "a").write(f"{got} {pid} {code}\\n")
    rounds += 1
    if rounds % 10 == 0:
        open("/tmp/rounds%d" % seed, "w").write(str(rounds) + "\\n")
"""


def rounds(workspace: Workspace, seed: int) -> int:
    with contextlib.suppress(ValueError):
        return int(play.read(workspace, f"/tmp/rounds{seed}"))
    return 0


def assert_goes_on(workspace: Workspace, seed: int) -> None:
    before, deadline = rounds(workspace, seed), time.monotonic() + 20
    while rounds(workspace, seed) <= before:
        assert time.monotonic() < deadline, f"storm {seed} stands still at {before}: {workspace.processes()}"
        time.sleep(0.005)
    assert play.read(workspace, "/tmp/broken") == ""


@pytest.mark.timeout(300)
def test_fifty_snapshots_of_a_tree_that_is_born_and_dies_at_full_speed(workspace: Workspace) -> None:
    for seed in (1, 2):
        background(workspace, f"storm{seed}", STORM, str(seed))
    for n in range(50):
        with workspace.snapshot() as snapshot:
            if n % 5 == 0:
                (child,) = snapshot.fork(1)
                if isinstance(child, WorkspaceError):
                    raise child
                with child:
                    for seed in (1, 2):
                        assert_goes_on(child, seed)
    for seed in (1, 2):
        assert_goes_on(workspace, seed)


# ---- refusals

HOLDERS = {
    # name: (a program that holds it, the words of the refusal, whether a descriptor is to blame)
    "inotify events not read": (
        "import ctypes, os; c = ctypes.CDLL(None); fd = c.inotify_init(); c.inotify_add_watch(fd, b'/tmp', 0x20)\n"
        "os.listdir('/tmp')",
        "an inotify instance with events not read yet",
        True,
    ),
    "fanotify or bpf": ("import ctypes; fd = ctypes.CDLL(None).syscall(321, 0, 0, 0)", "", True),
    "io_uring": (
        "import ctypes; b = ctypes.create_string_buffer(120); fd = ctypes.CDLL(None).syscall(425, 4, b)",
        "an io_uring instance",
        True,
    ),
    "userfaultfd": ("import ctypes; fd = ctypes.CDLL(None).syscall(323, 1)", "a userfaultfd", True),
    "perf event": (
        "import ctypes; b = ctypes.create_string_buffer(128); b[0] = b'\\x01'; b[4] = b'\\x80'; b[40] = b'\\x60'\n"
        "fd = ctypes.CDLL(None).syscall(298, b, 0, -1, -1, 0)",
        "",
        True,
    ),
    "seccomp filter": (
        "import ctypes, struct; c = ctypes.CDLL(None)\n"
        "code = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7fff0000))\n"
        "prog = ctypes.create_string_buffer(struct.pack('HxxxxxxP', 1, ctypes.addressof(code)))\n"
        "fd = 0 if c.prctl(22, 2, prog, 0, 0) == 0 else -1",
        "a seccomp filter of its own",
        False,
    ),
    "file lease being broken": (
        "import fcntl, os, signal; signal.signal(signal.SIGIO, signal.SIG_IGN)\n"
        "fd = os.open('/tmp/leased', os.O_RDONLY | os.O_CREAT); fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)\n"
        "try: os.open('/tmp/leased', os.O_WRONLY | os.O_NONBLOCK)\n"
        "except BlockingIOError: pass",
        "a lease that is being broken",
        True,
    ),
    "netlink socket": (
        "import socket, struct; s = socket.socket(16, socket.SOCK_RAW, 0); fd = s.fileno()\n"
        "s.send(struct.pack('IHHIIBxxx', 20, 18, 0x301, 1, 0, 0))",
        "a netlink socket with messages not read yet",
        True,
    ),
    "descriptor on its way": (
        "import ctypes, socket, os; a, b = socket.socketpair(); sent = ctypes.CDLL(None).syscall(323, 1)\n"
        "if sent >= 0: socket.send_fds(a, [b'x'], [sent]); os.close(sent)\n"
        "fd = b.fileno() if sent >= 0 else -1",
        "a userfaultfd, on its way in this unix socket",
        True,
    ),
    "packet socket": (
        "import socket\ntry: s = socket.socket(17, socket.SOCK_RAW, 0); fd = s.fileno()\nexcept OSError: fd = -1",
        "a packet socket",
        True,
    ),
    "cryptography socket": (
        "import socket\ntry: s = socket.socket(38, socket.SOCK_SEQPACKET, 0); fd = s.fileno()\nexcept OSError: fd = -1",
        "a socket of the kernel's cryptography",
        True,
    ),
}


@pytest.mark.parametrize("kind", HOLDERS)
def test_what_cannot_be_kept_is_refused_by_name_and_the_source_runs_on(workspace: Workspace, kind: str) -> None:
    program, words, by_descriptor = HOLDERS[kind]
    source = (
        f"{program}\nimport os, time\nprint('ready' if fd >= 0 else 'ready without it', fd, flush=True)\n"
        "n = 0\nwhile True:\n    time.sleep(0.005); n += 1\n    open('/tmp/alive', 'w').write(f'{n}\\n')\n"
    )
    pid = background(workspace, "holder", source)
    said = play.read(workspace, "/tmp/holder.out")
    if "without it" in said:
        # Not to be had inside a workspace: then there is nothing to refuse, and a fork works.
        (child,) = forks(workspace, 1)
        child.close()
        return
    workspace.run("kept=before")
    if not words:
        pytest.fail(f"a workspace gives out a {kind}: say here how it is refused")
    fd = int(said.split()[-1])
    for _ in range(2):  # a refusal changes nothing, so the second is like the first
        with pytest.raises(UnsupportedResource) as caught:
            workspace.snapshot()
        error = caught.value
        assert isinstance(error, ForkError) and isinstance(error, OSError)
        assert words in error.reason and error.reason in str(error)
        assert (error.pid, error.comm) == (pid, "python3")
        assert error.fd == (fd if by_descriptor else None)
        assert str(error).startswith("cannot fork: ") and "\n" not in str(error)
    before = play.read(workspace, "/tmp/alive")
    deadline = time.monotonic() + 10
    while play.read(workspace, "/tmp/alive") in ("", before):
        assert time.monotonic() < deadline, "the holder stands still"
    assert workspace.run("echo $kept").output == "before\n"
    workspace.run(f"kill -9 {pid}; sleep 0.1")
    (child,) = forks(workspace, 1)
    with child:
        assert child.run("echo $kept").output == "before\n"


# ---- lives apart


def test_a_snapshot_is_forked_after_its_source_closed() -> None:
    with Workspace(WorkspaceSpec(engine="native")) as source:
        background(source, "counter", COUNTER)
        source.run("x=kept; echo file > /tmp/file")
        snapshot = source.snapshot()
    with snapshot:
        for _ in range(3):
            for child in snapshot.fork(2):
                assert isinstance(child, Workspace)
                with child:
                    assert child.run("echo $x; cat /tmp/file; echo changed > /tmp/file").output == "kept\nfile\n"
                    assert ask_counter(child) > 0


def test_a_killed_child_does_not_touch_its_siblings(workspace: Workspace) -> None:
    first, second = forks(workspace, 2)
    with first, second:
        workspace.run("echo source > /tmp/who")
        inits = {pid for pid, comm in descendants(os.getpid()) if comm == "bunshin-init"}
        first.close()
        gone = inits - {pid for pid, _ in descendants(os.getpid())}
        assert gone, "closing a child ended no process"
        assert second.run("echo here; test -e /tmp/who || echo apart").output == "here\napart\n"
        assert workspace.run("cat /tmp/who").output == "source\n"


def descendants(root: int) -> list[tuple[int, str]]:
    table: dict[int, tuple[int, str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                head, _, tail = (entry / "stat").read_text(errors="replace").rpartition(")")
                table[int(entry.name)] = (int(tail.split()[1]), head.partition("(")[2])
    found = []
    for pid, (_, comm) in table.items():
        at = pid
        while at in table and at != root:
            at = table[at][0]
        if at == root and pid != root:
            found.append((pid, comm))
    return found


OWNER = """
import sys, time
from bunshin_gym import Workspace, WorkspaceSpec
ws = Workspace(WorkspaceSpec(engine="native"))
ws.run("sleep 1000 & sleep 1000 & setsid sleep 1000 & echo 1 > /tmp/f")
snapshot = ws.snapshot()
children = snapshot.fork(3)
grandchildren = children[0].fork(2)
if sys.argv[1] == "busy":
    import threading
    threading.Thread(target=lambda: [c.close() for _ in range(1000) for c in snapshot.fork(2)], daemon=True).start()
    threading.Thread(target=lambda: [ws.snapshot().close() for _ in range(1000)], daemon=True).start()
    time.sleep(0.2)
print("up", flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("doing", ["idle", "busy"])
def test_kill_9_of_the_owner_leaves_nothing(doing: str, tmp_path: Path) -> None:
    state = play.scratch()
    try:
        environment = {**os.environ, "BUNSHIN_STATE_DIR": str(state)}
        owner = subprocess.Popen(
            [sys.executable, "-c", OWNER, doing],
            cwd=Path(__file__).parents[2], env=environment, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert owner.stdout
        assert owner.stdout.readline() == "up\n"
        names = dict(descendants(owner.pid))
        # One that has ended since (a fork being closed) has no start, and nothing to leave.
        ours = {(pid, start) for pid in names if (start := start_of(pid))}
        assert len(ours) > 20
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        owner.stdout.close()
        deadline = time.monotonic() + 20
        while True:
            left = [f"{pid} ({names[pid]})" for pid, start in ours if start_of(pid) == start]
            left += [str(path) for path in state.iterdir()]
            if not left:
                break
            assert time.monotonic() < deadline, f"left behind: {left}"
            time.sleep(0.05)
        assert str(state) not in Path("/proc/self/mountinfo").read_text()
    finally:
        with contextlib.suppress(OSError):
            state.rmdir()


def start_of(pid: int) -> str:
    """When a process began, or "" for none and for a zombie that only waits for its parent."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def test_sixteen_threads_fork_one_snapshot_at_once(workspace: Workspace) -> None:
    background(workspace, "counter", COUNTER)
    workspace.run("x=shared; echo start > /tmp/file")
    with workspace.snapshot() as snapshot, concurrent.futures.ThreadPoolExecutor(16) as pool:

        def one(n: int) -> str:
            (child,) = snapshot.fork(1)
            if isinstance(child, WorkspaceError):
                raise child
            with child:
                child.run(f"echo {n} >> /tmp/file; own={n}")
                assert ask_counter(child) > 0
                return child.run("echo $x $own; cat /tmp/file").output

        assert list(pool.map(one, range(16))) == [f"shared {n}\nstart\n{n}\n" for n in range(16)]
        batch = snapshot.fork(16)
        assert all(isinstance(child, Workspace) for child in batch), batch
        for child in batch:
            assert isinstance(child, Workspace)
            with child:
                assert child.run("cat /tmp/file").output == "start\n"


# ---- random trees

TREE = (Path(__file__).parent / "random_tree.py").read_text()


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(seed=st.integers(0, 1 << 30), processes=st.integers(1, 10), generations=st.integers(1, 3))
def test_a_random_tree_looks_the_same_in_its_forks(seed: int, processes: int, generations: int) -> None:
    """A tree with random sessions, descriptors and memory describes itself; the description is equal in every fork."""
    with contextlib.ExitStack() as stack:
        workspace = stack.enter_context(Workspace(WorkspaceSpec(engine="native")))
        background(workspace, "tree", TREE, str(seed), str(processes))
        want = describe(workspace)
        assert want.count("pid ") == processes
        current = workspace
        for _ in range(generations):
            with current.snapshot() as snapshot:
                (child,) = snapshot.fork(1)
            if isinstance(child, WorkspaceError):
                raise child
            stack.enter_context(child)
            assert describe(child) == want
            assert describe(current) == want
            current = child


def describe(workspace: Workspace) -> str:
    """Asks every process of the tree what it sees of itself, in the order of their numbers."""
    result = workspace.call(
        ToolCall("exec", {"argv": ["bash", "-c", "cat /tmp/tree-ask > /dev/null; cat /tmp/tree-answers/*"]}), 60
    )
    assert result.exit_code == 0, result.output
    return result.output
