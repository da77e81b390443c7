"""The state digest of native workspaces: what leads back is seen to, what meets meets, and every change is seen."""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bunshin_gym import Snapshot, StateDigest, ToolCall, Workspace, WorkspaceSpec
from bunshin_gym.state import combine

pytestmark = [pytest.mark.engine("native")]

# What a state may hold before a call: something to change, of every kind.
SETTING = r"""
mkdir -p /work/d/inner && cd /work && echo one > f && echo two > g && ln -s f link && ln f hard && mkfifo pipe
mkdir empty && printf 'x = 1\n' > m.py && chmod 640 g && echo a > d/a && echo b > d/inner/b && truncate -s 1M sparse
X=1; export Y=2; Z=(a b c); fun() { echo one; }; alias ll='ls -l'; trap 'echo bye' EXIT; shopt -s extglob
echo s > /dev/shm/s
"""


@pytest.fixture(scope="module")
def root() -> Iterator[Snapshot]:
    with Workspace(WorkspaceSpec(engine="native")) as workspace:
        assert workspace.run(SETTING).exit_code == 0
        workspace.digest(b"root")
        with workspace.snapshot() as snapshot:
            yield snapshot


def fork(snapshot: Snapshot) -> Workspace:
    (child,) = snapshot.fork(1)
    assert isinstance(child, Workspace), child
    return child


def after(snapshot: Snapshot, commands: Sequence[str], seal: bool = False) -> StateDigest:
    """The digest that a fork has after some commands, each call named by its own history. `seal`: a snapshot before
    each of them."""
    origin = b"root"
    with fork(snapshot) as workspace:
        digest = workspace.digest(origin)
        for command in commands:
            if seal:
                workspace.snapshot().close()
            workspace.run(command)
            origin = combine(origin, command.encode())
            digest = workspace.digest(origin)
        return digest


def differs(one: StateDigest, other: StateDigest) -> list[str]:
    return [name for name in one.parts if one.parts[name] != other.parts.get(name)]


READERS = [
    "ls -la /",
    "cat f g",
    "grep -r one .",
    "echo hi",
    "pwd",
    "python3 -c 'print(1)'",
    "find / -xdev -name passwd",
    "ls | sort | uniq",
    "(cd /tmp; X=5)",
    "type fun; alias; trap; shopt",
    "git --version",
    "env",
    "cat < f",
    "test -e nothing; true",
    "for i in 1 2; do :; done; unset i",
    "set -o; declare -p; ulimit -a",
    "stat -c %s f; stat f | head -1",
    "sleep 0.01 & wait $!; true",
]


def test_forks_have_the_digest_of_what_was_forked(root: Snapshot) -> None:
    first, second = after(root, []), after(root, [])
    assert first == second, differs(first, second)
    assert first.unique == ""
    with fork(root) as workspace:
        for generation in range(3):
            assert workspace.digest(b"later") == first, generation
            workspace.snapshot().close()


def test_calls_that_only_look_lead_back(root: Snapshot) -> None:
    with fork(root) as workspace:
        before = workspace.digest(b"")
        for command in READERS[:-1]:
            assert workspace.run(command).exit_code == 0, command
            now = workspace.digest(command.encode())
            assert now == before, (command, differs(now, before))
        workspace.run(READERS[-1])  # a background job: what `wait` knows of it from now on
        assert workspace.digest(b"job").loose != before.loose


MEETINGS: list[tuple[list[str], list[str]]] = [
    (["echo a > n"], ["printf 'a\\n' > n"]),
    (["mkdir n; rmdir n"], [":"]),
    (["cp f n"], ["cat f > n"]),
    (["echo a > n; echo b > o"], ["echo b > o", "echo a > n"]),
    (["touch g"], [":"]),
    (["echo one > f"], ["echo 1 > f", "echo one > f"]),
    (["rm f; echo one > n; mv n f"], ["rm f; echo one > f"]),
    (["rm -r d; mkdir -p d/inner; echo a > d/a; echo b > d/inner/b"], [":"]),
    (["mv d e; mv e d"], [":"]),
    (["chmod 600 g; chmod 640 g"], [":"]),
    (["ln g n; rm n"], [":"]),
    (["rm /etc/hosts; rm -r d"], ["rm -r d", "rm /etc/hosts"]),
    (["rm d/a d/inner/b; rmdir d/inner d"], ["rm -r d"]),
    (["X=2; X=1"], [":"]),
    (["cd /tmp; cd /work; unset OLDPWD"], ["unset OLDPWD"]),
    (["fun() { echo two; }; fun() { echo one; }"], [":"]),
    (["exec 3<f; exec 3<&-"], [":"]),
    (["umask 077; umask 022"], [":"]),
    (["echo t > /dev/shm/s; echo s > /dev/shm/s"], [":"]),
    (["rm -r /etc/ssl; mkdir /etc/ssl"], ["rm -r /etc/ssl/*", ":"]),
    (["python3 -c 'import m'"], ["touch m.py; python3 -c 'import m'"]),
    (["truncate -s 0 sparse; truncate -s 1M sparse"], ["head -c 1M /dev/zero > sparse"]),
]


@pytest.mark.parametrize("seal", [False, True], ids=["in one layer", "sealed between"])
@pytest.mark.parametrize(("one", "other"), MEETINGS, ids=[" ".join(one)[:40] for one, _ in MEETINGS])
def test_histories_that_meet(root: Snapshot, one: list[str], other: list[str], seal: bool) -> None:
    first, second = after(root, one), after(root, other, seal)
    assert first.loose == second.loose, differs(first, second)


CHANGES = [
    "chmod 600 f",
    "python3 -c \"import os; os.setxattr('f', 'user.note', b'1')\"",
    "ln -sf g link",
    "mkdir n",
    "rm /etc/hosts",
    "echo more >> f",
    "truncate -s 2M sparse",
    "ln g n",
    "cp f n",
    "mv d e",
    "unset X",
    "fun() { echo two; }",
    "shopt -u extglob",
    "trap - EXIT",
    "trap 'echo t' INT",
    "trap 'echo t' ERR",
    "trap 'echo t' DEBUG",
    "trap 'echo t' RETURN",
    "umask 077",
    "cd /tmp",
    "export X",
    "Z[1]=q",
    "declare -i X",
    "readonly X",
    "sleep 60 & disown",
    "echo t > /dev/shm/t",
    "rm /dev/shm/s",
    "unalias ll",
    "exec 3<f",
    "exec 3<>pipe",
    "false",
    "set -u",
    "set -- a",
    "ulimit -c 5",
    "rm empty -r",
    "rmdir empty; touch empty",
    "mkfifo n",
    "rm hard",
    "rm -r d",
    "printf ' one\\n' > f",
    "enable -n test",
    "pushd /tmp",
    "history -s hi",
    "complete -W x y",
    "Z+=(d)",
    "X=",
    "rm pipe; touch pipe",
    "touch -d @1 m.py; cp -p m.py n.py",
]


@pytest.mark.parametrize("command", CHANGES)
def test_every_change_is_seen(root: Snapshot, command: str) -> None:
    before = after(root, [":"])
    now = after(root, [command])
    sealed = after(root, [command, ":", ":"], seal=True)
    assert now.loose != before.loose
    if command not in ("false",) and not now.unique:
        assert sealed.loose == now.loose, differs(sealed, now)


def test_changes_differ_from_each_other(root: Snapshot) -> None:
    digests = {command: after(root, [command]).loose for command in CHANGES}
    assert len(set(digests.values())) == len(CHANGES)


def test_times_are_for_the_strict_one(root: Snapshot) -> None:
    before = after(root, [":"])
    for command in ("touch g", "touch -d @5 g", "mkdir n; rmdir n", "chmod 600 g; chmod 640 g", "cat f > n; rm n"):
        now = after(root, [command])
        assert now.loose == before.loose, (command, differs(now, before))
        assert now.strict != before.strict, command


def test_bytecode_counts_by_whether_it_matches(root: Snapshot) -> None:
    fresh = ["python3 -c 'import m'"]
    stale = [*fresh, "touch -d @77 m.py"]
    assert after(root, fresh).loose != after(root, stale).loose
    assert after(root, fresh, seal=True).loose == after(root, fresh).loose
    assert after(root, stale, seal=True).loose == after(root, stale).loose
    # An edit after a test run leaves bytecode of the source before it, whenever that was written.
    first, second = ([f"touch -d @{then} m.py", *stale] for then in (1000, 2000))
    assert after(root, first).loose == after(root, second).loose
    again = [*stale, "python3 -c 'import m'"]
    assert after(root, again).loose == after(root, fresh).loose
    assert after(root, again, seal=True).loose == after(root, fresh).loose


def test_an_index_of_git_counts_without_times(root: Snapshot) -> None:
    make = "git init -q r && cd r && echo a > a && git add a"
    first, second = after(root, [make]), after(root, [make, "touch -d @77 a; git update-index --refresh"])
    assert first.loose == second.loose, differs(first, second)
    assert after(root, [make, "git rm -q --cached a"]).loose != first.loose


def test_a_removed_tree_is_seen_from_every_layer(root: Snapshot) -> None:
    """What lay in a sealed layer no longer counts once it is gone."""
    commands = ["mkdir -p t/u; echo 1 > t/u/v; echo 2 > t/w", "rm t/w", "rm -r t"]
    assert after(root, commands, seal=True).loose == after(root, [":"]).loose
    back = [*commands, "mkdir t", "echo 3 > t/w"]
    assert after(root, back, seal=True).loose == after(root, ["mkdir t; echo 3 > t/w"]).loose


def test_links_and_layers(root: Snapshot) -> None:
    linked = ["echo q > p; ln p q; ln p r"]
    copied = ["echo q > p; cp p q; cp p r"]
    assert after(root, linked).loose != after(root, copied).loose
    # Overlays part names of one file in a lower layer when one of them is written.
    parted = after(root, [*linked, "chmod 600 q; chmod 644 q"], seal=True)
    assert parted.loose not in (after(root, linked).loose, after(root, copied).loose)


def test_processes_count_by_the_call_they_were_born_in(root: Snapshot) -> None:
    with fork(root) as workspace:
        workspace.call(ToolCall("exec", {"argv": ["bash", "-c", "sleep 100 >/dev/null 2>&1 &"]}))
        time.sleep(0.2)  # it is asleep by then
        born = workspace.digest(b"born")
        assert "live processes" in born.unique
        workspace.run("ls")
        assert workspace.digest(b"ls") == born
        with workspace.snapshot() as snapshot:
            assert after(snapshot, []) == born
            assert after(snapshot, ["ls"]) == born
            with fork(snapshot) as inner, inner.snapshot() as again:
                assert after(again, ["ls"]) == born
            ended = after(snapshot, ["pkill sleep"])
        assert ended.loose == after(root, [":"]).loose
    with fork(root) as workspace:
        workspace.run("ls")
        workspace.call(ToolCall("exec", {"argv": ["bash", "-c", "sleep 100 >/dev/null 2>&1 &"]}))
        assert workspace.digest(b"another").loose != born.loose


def test_the_python_session_counts_by_history(root: Snapshot) -> None:
    digests = []
    for origin in (b"one", b"one", b"other"):
        with fork(root) as workspace:
            workspace.call(ToolCall("python", {"code": "x = 1"}))
            digests.append(workspace.digest(origin))
            workspace.run("ls")
            assert workspace.digest(b"ls") == digests[-1]
            workspace.call(ToolCall("python", {"code": "x"}))
            assert workspace.digest(b"read").loose != digests[-1].loose
    assert digests[0].loose == digests[1].loose != digests[2].loose


def test_a_call_without_a_digest_is_not_forgotten(root: Snapshot) -> None:
    with fork(root) as workspace:
        workspace.call(ToolCall("python", {"code": "x = 1"}))
        first = workspace.digest(b"one")
        workspace.call(ToolCall("python", {"code": "x = 2"}))
        with workspace.snapshot() as snapshot, fork(snapshot) as child:
            assert child.digest(b"two").loose != first.loose
        assert workspace.digest(b"two").loose != first.loose


def test_objects_of_the_kernel_count_by_history(root: Snapshot) -> None:
    before = after(root, [":"])
    made = after(root, ["ipcmk -Q >/dev/null"])
    assert "System V" in made.unique and made.loose != before.loose
    assert after(root, ["ipcmk -Q > /dev/null; ls"]).loose != made.loose
    assert after(root, ["ipcmk -Q >/dev/null; ipcrm -a"]).loose == before.loose


def test_a_digest_disturbs_nothing(root: Snapshot) -> None:
    """The same calls with and without a digest between them say the same."""
    calls = [
        "echo $? $_ ${PIPESTATUS[@]} $! $-",
        "true | false | true",
        'echo "$_" "${PIPESTATUS[*]}" $?',
        "(exit 3)",
        "echo $?",
        "set -o history; history",
        "history",
        "trap 'n=$((n+1))' DEBUG",
        "echo $n",
        "trap - DEBUG",
        "set -u",
        "echo $?",
        "sleep 0.01 &",
        "wait; jobs; echo $?",
        "set -E; trap 'echo err' ERR",
        "false",
        "trap",
        "set -C; set -a",
        "export -p",
        "declare -p | grep -v -e BASHPID -e SECONDS -e RANDOM -e EPOCH -e LINENO -e PPID",
        "declare -f; set -o",
        "set -f; set -x",
        "echo $BASH_COMMAND",
        "set +x; set -v",
        "echo v",
    ]
    with fork(root) as plain, fork(root) as asked:
        for call in calls:
            asked.digest(b"")
            asked.digest(b"again")
            one, other = plain.run(call), asked.run(call)
            assert one.output == other.output, call
            assert one.exit_code == other.exit_code, call


@pytest.mark.parametrize(
    "command", ["builtin() { :; }", "printf() { :; }; declare() { :; }; echo() { :; }", "__bunshin_state() { :; }"]
)
def test_a_shell_whose_means_of_telling_are_broken(root: Snapshot, command: str) -> None:
    with fork(root) as workspace:
        before = workspace.digest(b"")
        workspace.run(command, timeout=5)
        broken = workspace.digest(b"broken")
        assert broken.loose != before.loose
        workspace.run("ls")
        again = workspace.digest(b"ls")
        assert (again.loose != broken.loose) == ("does not tell" in broken.unique)


def test_a_shell_that_exits_is_a_fresh_one(root: Snapshot) -> None:
    with Workspace(WorkspaceSpec(engine="native")) as workspace:
        before = workspace.digest(b"")
        assert workspace.run("x=1; exit 0").exit_code == 0
        result = workspace.digest(b"exit")
        assert result.loose == before.loose, differs(result, before)
        assert workspace.run("echo $x").output == "\n"


@pytest.mark.parametrize(
    "command", ["X=1; f() { :; }; cd /tmp", "false", "trap 'echo $?' DEBUG", "set -eu; shopt -s extglob"]
)
def test_the_first_digest_may_come_late(command: str) -> None:
    """Only from the first digest on does the shell tell all of its state at the end of each call."""
    spec = WorkspaceSpec(engine="native")
    with Workspace(spec) as always, Workspace(spec) as late:
        always.digest(b"root")
        for workspace in (always, late):
            workspace.run(command)
        asked, found = always.digest(b"call"), late.digest(b"call")
        assert not asked.unique and not found.unique
        assert asked.parts["shell"] == found.parts["shell"]
        assert always.run("echo $?; pwd").output == late.run("echo $?; pwd").output
        assert always.digest(b"last").parts["shell"] == late.digest(b"last").parts["shell"]


def test_a_fresh_workspace_has_the_digest_of_one_whose_shell_has_started() -> None:
    with Workspace(WorkspaceSpec(engine="native")) as one, Workspace(WorkspaceSpec(engine="native")) as other:
        one.run(":")
        assert one.digest(b"").loose == other.digest(b"").loose


def test_many_files_advise_a_seal(root: Snapshot) -> None:
    with fork(root) as workspace:
        workspace.run("mkdir many; cd many; for i in {1..1100}; do : > $i; done; cd ..")
        before = workspace.digest(b"many")
        assert before.seal_advised
        with workspace.snapshot() as snapshot:
            sealed = workspace.digest(b"sealed")
            assert sealed == before and not sealed.seal_advised
            assert after(snapshot, []) == before
        workspace.run("rm -r many; cd /work; unset i OLDPWD")
        gone = workspace.digest(b"gone")
        assert gone.loose == after(root, ["unset OLDPWD"]).loose, differs(gone, after(root, ["unset OLDPWD"]))


def test_a_service_that_only_ticks_stays_what_it_is() -> None:
    """Time changes it in every history alike; a request does not."""
    source = r"""
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>
static volatile long ticks, asked, resident;
/* Leaves something in another place of the stack each time, and notes its own size, which is another in a fork. */
static __attribute__((noinline)) void tick(void) {
    volatile char left[16384];
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%*d %ld", &pages) == 1) resident = pages * 4096;
    if (file) fclose(file);
    left[++ticks * 7919 % sizeof left] = ticks;
}
int main(void) {
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(7999)};
    bind(listener, (struct sockaddr *)&address, sizeof address); listen(listener, 5);
    for (;;) {
        struct pollfd wait = {.fd = listener, .events = POLLIN};
        if (poll(&wait, 1, 20) == 1) close(accept(listener, 0, 0)), asked++;
        else tick();
    }
}
"""
    with Workspace(WorkspaceSpec(engine="native")) as workspace:
        workspace.write_file("/work/service.c", source.encode())
        assert workspace.run("cc -o service service.c").exit_code == 0
        workspace.call(ToolCall("exec", {"argv": ["bash", "-c", "/work/service </dev/null >/dev/null 2>&1 &"]}))
        root = workspace.digest(b"root")
        with workspace.snapshot() as snapshot:
            assert after(snapshot, ["sleep 0.2", "ls", "sleep 0.1"]).loose == root.loose
            asked = after(snapshot, ["exec 3<>/dev/tcp/127.0.0.1/7999; cat <&3; exec 3<&-"])
            assert asked.loose != root.loose
            assert asked.loose == after(snapshot, ["exec 3<>/dev/tcp/127.0.0.1/7999; cat <&3; exec 3<&-"]).loose
            with fork(snapshot) as child:
                child.run("sleep 0.2")
                assert child.digest(b"slept").loose == root.loose
                with child.snapshot() as later:
                    assert after(later, ["sleep 0.2"]).loose == root.loose


MAPPER = """
import mmap, os, time
fd = os.open("/work/mapped", os.O_RDWR); view = mmap.mmap(fd, 4096)
view[0] = 65; open("/work/ready", "w").close()
while not os.path.exists("/work/go"): time.sleep(0.01)
view[0] = 66; os._exit(0)
"""


def test_a_file_that_is_written_through_a_mapping(root: Snapshot) -> None:
    """The second write to a page that is mapped changes no time."""
    with fork(root) as workspace:
        workspace.write_file("/work/map.py", MAPPER.encode())
        workspace.run(
            "truncate -s 4096 mapped; (python3 map.py &) ; until [ -e ready ]; do sleep 0.01; done; sleep 0.1"
        )
        workspace.digest(b"mapped")
        written = workspace.digest(b"again").parts["files /"]
        workspace.run("touch go; sleep 0.3; rm go")
        assert workspace.read_file("/work/mapped")[:1] == b"B"
        assert workspace.digest(b"gone").parts["files /"] != written


def test_what_nobody_has_taken_counts_by_history(root: Snapshot) -> None:
    with fork(root) as workspace:
        server = "import socket, time; s = socket.socket(); s.bind(('127.0.0.1', 7998)); s.listen(); time.sleep(1000)"
        workspace.run(f'(python3 -c "{server}" &); sleep 0.3')
        before = workspace.digest(b"server")
        workspace.run("exec 3<>/dev/tcp/127.0.0.1/7998; echo hi >&3; exec 3<&-")
        now = workspace.digest(b"sent")
        assert "nobody has taken" in now.unique
        assert now.loose != before.loose


STEPS = [
    "echo one > f",
    "echo two > f",
    "cp g f",
    "rm -f f",
    "touch f",
    "rm -rf d",
    "mkdir -p d/inner",
    "echo b > d/inner/b",
    "chmod 600 g",
    "chmod 640 g",
    "ln -sf g link",
    "ln -sfn f link",
    "X=1",
    "X=2",
    "unset X",
    "cd d",
    "cd /work",
    "cd ..",
    "umask 077",
    "umask 022",
    "mv f h",
    "mv h f",
    "ln g h",
    "false",
    ":",
    "export X",
    "declare +x X",
    "python3 -c 'import m'",
    "echo 'x = 2' > m.py",
    "rm -rf __pycache__",
    "rm -f /dev/shm/s",
    "echo s > /dev/shm/s",
    "cat f",
    "rm -r /etc/ssl",
    "mkdir -p /etc/ssl",
    "alias ll='ls -l'",
    "unalias -a",
    "set -- a",
    "set --",
    "trap - EXIT",
    "fun() { :; }",
]
LOOK = r"""
echo $? $X $# "${Z[*]}"; pwd -P; umask; alias; trap; declare -p X 2>&1; declare -f fun
find /work /etc/ssl /dev/shm -printf '%p %y %m %u %l\n' 2>/dev/null | sort
find /work /dev/shm -type f ! -name '*.pyc' -exec sh -c 'echo "$1"; head -c 9999 "$1"' - {} \; | sort
python3 -B -c 'import sys; sys.path[0] = "/work"; import m; print(m.x)'
echo >> /work/g; cat /work/h 2>&1; cd /work; ls
"""


def check_programs(root: Snapshot, programs: list[list[str]]) -> None:
    """Programs that end in one loose digest look alike from then on."""
    seen: dict[bytes, tuple[list[str], str]] = {}
    for program in programs:
        with fork(root) as workspace:
            for step in program:
                workspace.run(step)
            digest = workspace.digest(" ".join(program).encode()).loose
            output = workspace.run(LOOK).output
        other, expected = seen.setdefault(digest, (program, output))
        assert output == expected, (program, other)


PROGRAMS = st.lists(st.lists(st.sampled_from(STEPS), max_size=3), min_size=4, max_size=8)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PROGRAMS)
def test_equal_digests_are_equal_futures(root: Snapshot, programs: list[list[str]]) -> None:
    check_programs(root, programs)


@pytest.mark.thorough
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PROGRAMS)
def test_equal_digests_are_equal_futures_often(root: Snapshot, programs: list[list[str]]) -> None:
    check_programs(root, programs)


@pytest.mark.needs("gcc")
def test_the_hash_is_the_one_it_is_said_to_be(tmp_path: Path) -> None:
    sources = Path(__file__).parents[2] / "native" / "src"
    library = tmp_path / "hash.so"
    command = ["gcc", "-shared", "-fPIC", "-O1", f"-I{sources}", "-o", library, sources / "digest" / "hash.c"]
    subprocess.run(command, check=True)

    class State(ctypes.Structure):
        _fields_ = [
            ("h", ctypes.c_uint64 * 8),
            ("n", ctypes.c_uint64),
            ("b", ctypes.c_uint8 * 128),
            ("u", ctypes.c_size_t),
        ]

    class Hash(ctypes.Structure):
        _fields_ = [("bytes", ctypes.c_uint8 * 32)]

    lib = ctypes.CDLL(str(library))
    lib.hash_end.restype = Hash
    text = bytes(i * 7 & 255 for i in range(5000))
    for size in (0, 1, 127, 128, 129, 255, 256, 257, 5000):
        state = State()
        lib.hash_init(ctypes.byref(state))
        for start in range(0, size, 100):
            part = text[start : min(start + 100, size)]
            lib.hash_update(ctypes.byref(state), part, ctypes.c_size_t(len(part)))
        assert bytes(lib.hash_end(ctypes.byref(state)).bytes) == hashlib.blake2b(text[:size], digest_size=32).digest()
