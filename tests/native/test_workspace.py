"""A native workspace: its namespaces, what tools may not do, what they cannot see, its image, its limits, its end."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from field.looks import execute, host_pid, python, until

import needs
import residue
from bunshin_gym import ExitReason, Image, ToolCall, Workspace, WorkspaceSpec, features
from bunshin_gym.errors import ImageError

pytestmark = pytest.mark.engine("native")
Start = Callable[..., Workspace]


@pytest.fixture
def start() -> Iterator[Start]:
    needs.require("engine native")
    made: list[Workspace] = []

    def make(**overrides: object) -> Workspace:
        made.append(Workspace(WorkspaceSpec(**({"call_timeout": 60.0} | overrides))))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for workspace in made:
        workspace.close()


@pytest.fixture
def workspace(start: Start) -> Workspace:
    return start()


# ---- isolation: namespaces


@pytest.mark.parametrize("kind", ["pid", "mnt", "net", "ipc", "uts", "user"])
def test_every_namespace_is_its_own(start: Start, kind: str) -> None:
    one, other = start(), start()
    seen = [execute(w, "readlink", f"/proc/self/ns/{kind}").output.strip() for w in (one, other)]
    assert len({*seen, os.readlink(f"/proc/self/ns/{kind}")}) == 3
    for tool in (
        one.run(f"readlink /proc/self/ns/{kind}"),
        python(one, f"import os; print(os.readlink('/proc/self/ns/{kind}'))"),
    ):
        assert tool.output.strip() == seen[0]


def test_no_process_of_the_machine_is_seen(workspace: Workspace) -> None:
    assert [p.pid for p in workspace.processes()] == [1]
    pids = execute(workspace, "sh", "-c", "echo /proc/[0-9]*").output.split()
    assert len(pids) <= 2
    assert workspace.run("kill -9 -1; kill -9 1; echo on").exit_reason is not ExitReason.WORKSPACE_LOST
    assert workspace.run("echo on").output == "on\n"


def test_the_host_name_is_its_own(start: Start) -> None:
    assert start(hostname="elsewhere").run("hostname; cat /proc/sys/kernel/hostname").output == "elsewhere\nelsewhere\n"


def test_the_loopback_is_up_and_alone(workspace: Workspace) -> None:
    assert workspace.run("ls /sys/class/net").output == "lo\n"
    assert execute(workspace, "cat", "/proc/net/route").output.count("\n") == 1
    code = """
import socket
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    server = socket.create_server((address, 0), family=family)
    client = socket.create_connection(server.getsockname()[:2], timeout=5)
    client.sendall(b"x")
    print(server.accept()[0].recv(1))
try: socket.create_connection(("192.0.2.1", 80), timeout=5)
except OSError as error: print(error.errno)
try: socket.getaddrinfo("example.com", 80)
except OSError: print("no names")
"""
    assert execute(workspace, "python3", "-c", code).output == "b'x'\nb'x'\n101\nno names\n"


def test_abstract_sockets_of_the_machine_are_not_reached(workspace: Workspace) -> None:
    import socket

    name = f"\0bunshin-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        code = f"import socket; socket.socket(socket.AF_UNIX).connect({name!r})"
        assert "ConnectionRefused" in execute(workspace, "python3", "-c", code).output


@pytest.mark.parametrize("network", ["none", "host"])
def test_the_network_asked_for(start: Start, network: str) -> None:
    import socket

    workspace = start(network=network)
    same = execute(workspace, "readlink", "/proc/self/ns/net").output.strip() == os.readlink("/proc/self/ns/net")
    assert same == (network == "host")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), timeout=5)"
        assert execute(workspace, "python3", "-c", code).ok == (network == "host")


# ---- what tools may not do

TOOLS: dict[str, Callable[[Workspace, str], str]] = {
    "shell": lambda w, command: w.run(command).output,
    "exec": lambda w, command: execute(w, "sh", "-c", command).output,
    "python": lambda w, command: python(w, f"import os; _ = os.system({command!r})").output,
}


@pytest.mark.parametrize("tool", TOOLS)
def test_no_privileges_and_no_way_to_them(workspace: Workspace, tool: str) -> None:
    lines = dict(
        line.split(":\t", 1) for line in TOOLS[tool](workspace, "cat /proc/self/status").splitlines() if ":\t" in line
    )
    assert lines["NoNewPrivs"] == "1"
    assert lines["Seccomp"] == "2"
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(lines[name], 16) == 0, name


CALLS = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static void say(const char *name, long got) { printf("%s %s\n", name, got >= 0 ? "done" : strerrorname_np(errno)); }
#define TRY(name, ...) say(name, syscall(__VA_ARGS__))
int main(void) {
    char stack[16];
    TRY("mount", SYS_mount, "none", "/tmp", "tmpfs", 0, 0);
    TRY("umount", SYS_umount2, "/proc", 2);
    TRY("pivot_root", SYS_pivot_root, "/", "/");
    TRY("fsopen", SYS_fsopen, "tmpfs", 0);
    TRY("open_tree", SYS_open_tree, AT_FDCWD, "/", 1);
    TRY("move_mount", SYS_move_mount, -1, "", -1, "", 0);
    TRY("mount_setattr", 442, AT_FDCWD, "/", 0, 0, 0);
    TRY("chroot", SYS_chroot, "/tmp");
    TRY("init_module", SYS_init_module, stack, 0, "");
    TRY("finit_module", SYS_finit_module, 0, "", 0);
    TRY("delete_module", SYS_delete_module, "x", 0);
    TRY("bpf", SYS_bpf, 0, 0, 0);
    TRY("keyctl", SYS_keyctl, 0, 0);
    TRY("add_key", SYS_add_key, "user", "x", "y", 1, -3);
    TRY("request_key", SYS_request_key, "user", "x", 0, 0);
    TRY("kexec_load", SYS_kexec_load, 0, 0, 0, 0);
    TRY("kexec_file_load", SYS_kexec_file_load, 0, 0, 0, 0, 0);
    TRY("userfaultfd", SYS_userfaultfd, 1);
    TRY("perf_event_open", SYS_perf_event_open, stack, 0, -1, -1, 0);
    TRY("reboot", SYS_reboot, 0xfee1dead, 672274793, 0, 0);
    TRY("swapon", SYS_swapon, "/x", 0);
    TRY("settimeofday", SYS_settimeofday, 0, 0);
    TRY("sethostname", SYS_sethostname, "x", 1);
    TRY("setns", SYS_setns, 0, 0);
    TRY("open_by_handle_at", SYS_open_by_handle_at, AT_FDCWD, stack, 0);
    TRY("iopl", SYS_iopl, 3);
    TRY("syslog", SYS_syslog, 3, stack, 8);
    TRY("acct", SYS_acct, "/x");
    TRY("mknod", SYS_mknod, "/tmp/disk", 0060644, 0x800);
    TRY("unshare user", SYS_unshare, CLONE_NEWUSER);
    TRY("unshare net", SYS_unshare, CLONE_NEWNET);
    TRY("unshare mount", SYS_unshare, CLONE_NEWNS);
    TRY("unshare pid", SYS_unshare, CLONE_NEWPID);
    TRY("clone user", SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    TRY("clone net", SYS_clone, CLONE_NEWNET | SIGCHLD, 0, 0, 0, 0);
    TRY("clone3", SYS_clone3, stack, 0);
    TRY("x32 getpid", 0x40000000 | SYS_getpid);
    TRY("x32 mount", 0x40000000 | SYS_mount, "none", "/tmp", "tmpfs", 0, 0);
    TRY("ptrace of pid 1", SYS_ptrace, 0x4206, 1, 0, 0);
    TRY("signal to pid 1", SYS_kill, 1, SIGKILL);
    TRY("getpid", SYS_getpid);
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(20L) : "memory");
    printf("int80 getpid %s\n", result > 0 ? "done" : strerrorname_np((int)-(int)result));
    return 0;
}
"""


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("tool", TOOLS)
def test_refused_system_calls(workspace: Workspace, tool: str) -> None:
    workspace.write_file("/work/calls.c", CALLS.encode())
    built = execute(workspace, "gcc", "-o", "/work/calls", "/work/calls.c")
    assert built.ok, built.output
    found = dict(line.rsplit(" ", 1) for line in TOOLS[tool](workspace, "/work/calls").splitlines())
    assert found.pop("getpid") == "done"
    assert found.pop("signal to pid 1") in ("done", "EPERM")  # a first process has no default death
    assert found.pop("clone3") == "ENOSYS"  # so that libraries fall back to clone
    assert found.pop("x32 getpid") == "ENOSYS"
    assert found.pop("x32 mount") == "ENOSYS"
    assert found.pop("int80 getpid") == "ENOSYS"
    assert set(found.values()) == {"EPERM"}, found
    assert workspace.run("echo on").output == "on\n"


def test_programs_that_gain_rights_gain_none(workspace: Workspace) -> None:
    assert not workspace.run("mount -t tmpfs none /tmp").ok
    assert not workspace.run("unshare -r true").ok
    assert not workspace.run("unshare -U true").ok
    assert not workspace.run("chroot / true").ok
    assert not workspace.run("mknod /tmp/disk b 8 0").ok
    assert workspace.run("cp /bin/true t && chmod u+s t && ./t").ok


# ---- what tools cannot see


@pytest.mark.parametrize("path", ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sysrq-trigger"])
def test_masked_files_hold_nothing(workspace: Workspace, path: str) -> None:
    result = execute(workspace, "sh", "-c", f"head -c 100 {path} 2>/dev/null | wc -c")
    assert result.output.strip() == "0"


def test_sysrq_cannot_be_triggered(workspace: Workspace) -> None:
    # Written where it goes nowhere, or not at all; never with a letter that would do something.
    look = execute(workspace, "sh", "-c", "[ ! -e /proc/sysrq-trigger ] || [ -c /proc/sysrq-trigger ] && echo masked")
    assert look.output == "masked\n"


@pytest.mark.parametrize(
    "path",
    [
        "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/vm/overcommit_memory",
        "/proc/sys/net/ipv4/ip_forward", "/proc/sys/kernel/ns_last_pid", "/sys/power/state",
    ],
)  # fmt: skip
def test_settings_of_the_kernel_are_read_only(workspace: Workspace, path: str) -> None:
    before = Path(path).read_bytes() if os.access(path, os.R_OK) else b""
    assert not execute(workspace, "sh", "-c", f"echo 1 > {path}").ok
    assert before == (Path(path).read_bytes() if os.access(path, os.R_OK) else b"") or "last_pid" in path
    assert execute(workspace, "test", "-w", "/proc/sys").exit_code == 1


def test_sys_is_read_only_or_absent(workspace: Workspace) -> None:
    assert workspace.run("find /sys -writable ! -type l 2>/dev/null | head -3").output == ""
    assert workspace.run("ls /sys/firmware /sys/kernel 2>/dev/null | grep -v :").output.strip() == ""


def test_pid_1_keeps_its_secrets(workspace: Workspace) -> None:
    for name in ("environ", "mem", "root", "cwd", "fd/0", "exe"):
        assert not execute(workspace, "cat", f"/proc/1/{name}").ok
    command = execute(workspace, "cat", "/proc/1/cmdline").stdout
    assert str(Path.home()).encode() not in command
    assert command.rstrip(b"\0") == b"bunshin-init"


def test_no_descriptor_of_ours_is_inside(workspace: Workspace) -> None:
    listing = "for fd in /proc/self/fd/*; do readlink $fd; done; true"
    for tool in TOOLS:
        targets = TOOLS[tool](workspace, listing).split()
        allowed = ("/dev/null", "/dev/pts/", "/run/bunshin/", "pipe:", "/proc/")
        assert all(target.startswith(allowed) for target in targets), (tool, targets)
        assert not any("socket:" in target or "memfd:" in target for target in targets)


def test_the_host_image_holds_no_secrets(workspace: Workspace) -> None:
    assert workspace.run("ls -A /root /home /mnt /srv | grep -v :").output.strip() == ""
    for path in ("/etc/shadow", "/etc/gshadow", "/etc/ssh", "/etc/sudoers", "/etc/machine-id", "/etc/ssl/private",
                 "/etc/NetworkManager", "/etc/crontab", "/var/lib/dpkg", "/var/log/syslog", "/etc/docker",
                 "/etc/krb5.keytab", "/boot"):  # fmt: skip
        assert not workspace.run(f"test -e {path} && ls -A {path} | grep .").ok, path
    found = workspace.run("find / -xdev -path /proc -prune -o -type s -print 2>/dev/null").output
    assert found == ""
    assert (
        workspace.run("find /run /var/run/ ! -type d ! -path '/run/bunshin/*' ! -path '/var/run/bunshin/*'").output
        == ""
    )
    names = "-name 'id_*' -o -name '*.key' -o -name '.netrc' -o -name '.pgpass' -o -name '.aws' -o -name 'credentials'"
    assert workspace.run(f"find /etc /root /home /var /tmp /run \\( {names} \\) 2>/dev/null").output == ""
    users = workspace.run("cut -d: -f2,3 /etc/passwd").output.split()
    assert all(int(entry.partition(":")[2]) < 1000 or entry.endswith(":65534") for entry in users)
    assert all(entry.startswith("*:") for entry in users)


def test_the_environment_of_the_owner_does_not_come_in(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET_OF_THE_OWNER", "hush")
    workspace = start(env={"GIVEN": "1"})
    for tool in TOOLS:
        text = TOOLS[tool](workspace, "env")
        assert "hush" not in text
        assert "GIVEN=1" in text.splitlines()
    assert b"hush" not in execute(workspace, "sh", "-c", "cat /proc/*/environ").stdout


def test_what_is_written_stays_inside(workspace: Workspace) -> None:
    name = f"bunshin-test-{os.getpid()}"
    for folder in ("/tmp", "/etc", "/usr/local", "/opt", "/dev/shm", "/var/tmp", "/root"):
        workspace.run(f"echo x > {folder}/{name}")
        assert not os.path.exists(f"{folder}/{name}")
    assert workspace.run(f"cat /tmp/{name} /etc/{name} /dev/shm/{name} /root/{name}").output == "x\n" * 4


def test_devices(workspace: Workspace) -> None:
    assert workspace.run("ls /dev").output.split() == [
        "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom", "zero",
    ]  # fmt: skip
    assert workspace.run("head -c 4 /dev/zero | wc -c; echo x > /dev/null; echo x > /dev/full").stdout == b"4\n"
    assert workspace.run("script -qec tty /dev/null").stdout == b"/dev/pts/1\r\n"
    code = "from multiprocessing.shared_memory import SharedMemory as M; M(create=True, size=9).unlink(); print('ok')"
    assert execute(workspace, "python3", "-c", code).output == "ok\n"


# ---- images


def test_expose_shows_a_directory_read_only(start: Start, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("shown")
    workspace = start(image=Image.host(expose=[tmp_path]))
    assert workspace.run(f"cat {tmp_path}/f").output == "shown"
    assert not workspace.run(f"echo x > {tmp_path}/f").ok
    with pytest.raises(ImageError):
        Image.host(expose=[tmp_path / "absent"])


def small_root(folder: Path) -> Path:
    """A root file system that has what a shell and a few programs need."""
    for name in ("proc", "dev", "sys", "tmp", "etc", "usr/bin", "work"):
        (folder / name).mkdir(parents=True)
    (folder / "bin").symlink_to("usr/bin")
    for name in ("lib", "lib64"):
        if os.path.islink(f"/{name}"):
            (folder / name).symlink_to(os.readlink(f"/{name}"))
    for program in ("bash", "sh", "cat", "ls", "rm"):
        target = folder / "usr/bin" / program
        target.write_bytes(Path(f"/bin/{program}").read_bytes())
        target.chmod(0o755)
        linked = subprocess.run(["ldd", f"/bin/{program}"], capture_output=True, text=True, check=True).stdout
        for word in linked.split():
            if word.startswith("/"):
                copy = folder / os.path.realpath(os.path.dirname(word)).lstrip("/") / os.path.basename(word)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(Path(word).read_bytes())
                copy.chmod(0o755)
    (folder / "etc/mark").write_text("of the directory\n")
    return folder


def test_a_directory_is_the_whole_root_and_stays_as_it_was(start: Start, tmp_path: Path) -> None:
    root = small_root(tmp_path / "root")
    before = sorted(str(path) for path in root.rglob("*"))
    image = Image.directory(root)
    one, other = start(image=image), start(image=image)
    assert one.run("cat /etc/mark; ls /usr/bin").output == "of the directory\nbash\ncat\nls\nrm\nsh\n"
    one.run("echo changed > /etc/mark; rm /usr/bin/ls; echo new > /new")
    assert one.run("cat /etc/mark /new").output == "changed\nnew\n"
    assert other.run("cat /etc/mark; ls -d /new").stdout == b"of the directory\n"
    one.close()
    other.close()
    assert sorted(str(path) for path in root.rglob("*")) == before
    assert (root / "etc/mark").read_text() == "of the directory\n"
    with pytest.raises(ImageError):
        Image.directory(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ImageError):
        Image.directory(tmp_path / "empty")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BUNSHIN_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_built_image_holds_what_its_commands_wrote(start: Start, cache: Path) -> None:
    image = Image.build(
        Image.host(), ["mkdir -p /data && seq 3 > /data/n", "cd /data; wc -l < n > count"], network="none"
    )
    one, other = start(image=image), start(image=image)
    assert one.run("cat /data/n /data/count").output == "1\n2\n3\n3\n"
    one.run("rm -r /data")
    assert other.run("cat /data/count").output == "3\n"
    above = Image.build(image, ["echo more >> /data/n"], network="none")
    assert start(image=above).run("tail -n 2 /data/n").output == "3\nmore\n"


def test_a_second_build_runs_nothing(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bunshin_gym.engines.native import NativeEngine

    built: list[tuple[str, ...]] = []
    run = NativeEngine.build_layer

    def counted(self: NativeEngine, base: Image, commands: tuple[str, ...], *rest: object) -> None:
        built.append(tuple(commands))
        run(self, base, commands, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(NativeEngine, "build_layer", counted)
    first = Image.build(Image.host(), ["echo $RANDOM > /r"], network="none")
    for _ in range(3):
        assert Image.build(Image.host(), ["echo $RANDOM > /r"], network="none") == first
    assert len(built) == 1
    threads = [threading.Thread(target=Image.build, args=(Image.host(), ["echo two > /r"], "none")) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 2
    Image.build(Image.host(), ["echo three > /r"], network="none")
    assert len(built) == 3


def test_a_build_that_fails_says_why_and_is_not_kept(cache: Path) -> None:
    for _ in range(2):
        with pytest.raises(ImageError, match="no such thing") as error:
            Image.build(Image.host(), ["echo 'no such thing' >&2; exit 7"], network="none")
        assert "7" in str(error.value)
    assert not any(path.is_dir() for path in (cache / "layers").iterdir())


def test_a_build_asks_the_network_it_is_given(start: Start, cache: Path) -> None:
    same = {}
    for network in ("none", "host"):
        image = Image.build(Image.host(), ["readlink /proc/self/ns/net > /net"], network=network)
        same[network] = start(image=image).run("cat /net").output.strip() == os.readlink("/proc/self/ns/net")
    assert same == {"none": False, "host": True}


# ---- limits


def test_features_say_what_limits_rest_on() -> None:
    found = features()
    assert found["memory-limit"] in ("cgroup v1", "cgroup v2", "polling")
    assert found["pids-limit"] in ("cgroup v1", "cgroup v2", "rlimit and polling")
    assert "polling" in found["disk-limit"]
    assert found["user"] == ("root" if os.geteuid() == 0 else "ordinary")
    assert found["native-works"] == "yes"
    if os.geteuid() != 0 and not os.access("/sys/fs/cgroup", os.W_OK):
        assert found["pids-limit"] == "rlimit and polling"


EATER = "python3 -c 'x = []\nwhile True: x.append(bytearray(b\"x\" * (1 << 20)))'"


@pytest.mark.parametrize("tool", ["shell", "exec", "python"])
def test_a_memory_limit(start: Start, tool: str) -> None:
    workspace, other = start(memory_limit="128M"), start()
    if tool == "shell":
        result = workspace.run(EATER)
    elif tool == "exec":
        result = execute(workspace, "sh", "-c", EATER)
    else:
        result = python(workspace, "x = []\nwhile True: x.append(bytearray(b'x' * (1 << 20)))")
    assert result.exit_reason is ExitReason.OUT_OF_MEMORY
    assert result.exit_code != 0
    assert workspace.run("echo on").output == "on\n"
    assert python(workspace, "1 + 1").output == "2\n"
    assert other.run("echo unharmed").output == "unharmed\n"


def test_a_memory_limit_is_of_the_whole_workspace(start: Start) -> None:
    workspace = start(memory_limit="128M")
    one = "python3 -c 'import time; x = bytearray(b\"x\" * (48 << 20)); time.sleep(30)'"
    result = workspace.run(f"{one} & {one} & {one} & {one} & wait -n", timeout=60)
    assert result.exit_reason is ExitReason.OUT_OF_MEMORY
    assert workspace.run("python3 -c 'print(len(bytes(1 << 20)))'").output == "1048576\n"


def test_a_pids_limit(start: Start) -> None:
    workspace = start(pids_limit=20)
    result = workspace.run("for i in {1..40}; do sleep 30 & done 2>/dev/null; wait -n", timeout=3)
    assert result.exit_code != 0
    assert len(workspace.processes()) <= 22
    assert start().run("/bin/echo free").output == "free\n"


def test_a_disk_limit_counts_the_sum_of_files(start: Start) -> None:
    workspace = start(disk_limit="16M")
    result = workspace.run("for i in {1..100}; do head -c 1M /dev/zero > f$i; sleep 0.01; done; sleep 30", timeout=60)
    assert result.exit_reason is ExitReason.SIGNALED
    assert "no space left" in result.notice
    assert workspace.run("rm f*; echo on").output == "on\n"


def test_the_disk_limit_bounds_files_and_not_output(start: Start) -> None:
    workspace = start(disk_limit="1M", output_limit=8 << 20)
    result = workspace.run("head -c 4M /dev/zero")
    assert (len(result.stdout), result.exit_code) == (4 << 20, 0)
    assert "File too large" in workspace.run("head -c 4M /dev/zero > f").output
    (child,) = workspace.fork(1)
    assert isinstance(child, Workspace), child
    assert "File too large" in child.run("head -c 4M /dev/zero > f").output
    child.close()


# ---- life and death


def test_a_hundred_live_side_by_side(start: Start) -> None:
    before = residue.look()
    workspaces = [start() for _ in range(100)]
    for number, workspace in enumerate(workspaces):
        assert workspace.run(f"n={number}; echo $n > /tmp/n; cat /tmp/n").output == f"{number}\n"
    for number, workspace in enumerate(workspaces):
        assert workspace.run("echo $n; cat /tmp/n").output == f"{number}\n{number}\n"
    for workspace in workspaces:
        workspace.close()
    assert residue.since(before) == []


def test_many_threads_use_many_workspaces(start: Start) -> None:
    results: dict[int, list[str]] = {}

    def use(number: int) -> None:
        with Workspace() as workspace:
            results[number] = [workspace.run(f"echo {number}.{i}").output for i in range(20)]

    threads = [threading.Thread(target=use, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert results == {n: [f"{n}.{i}\n" for i in range(20)] for n in range(16)}


def test_a_workspace_whose_pid_1_is_killed_is_lost(start: Start) -> None:
    workspace, pid = host_pid(start)
    other = start()
    assert workspace.run("sleep 600 & echo a").output == "a\n"
    os.kill(pid, signal.SIGKILL)
    assert until(lambda: not workspace.alive)
    result = workspace.run("echo b")
    assert (result.exit_reason, result.exit_code) == (ExitReason.WORKSPACE_LOST, None)
    assert other.run("echo c").output == "c\n"


def test_the_owner_killed_takes_all_along() -> None:
    program = """
import time
from bunshin_gym import Workspace, WorkspaceSpec
mine = [Workspace(WorkspaceSpec(memory_limit="256M", disk_limit="1G")) for _ in range(10)]
for w in mine:
    w.run("setsid -f sleep 600; echo x > /tmp/f")
print("ready", flush=True)
time.sleep(600)
"""
    before = residue.look()
    mounts = Path("/proc/self/mountinfo").read_text()
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        try:
            assert owner.stdout.readline() == b"ready\n"
        finally:
            owner.kill()
    assert residue.since(before, grace=30) == []
    assert Path("/proc/self/mountinfo").read_text() == mounts


# ---- exec and python


def test_exec_takes_arguments_as_they_are(workspace: Workspace) -> None:
    odd = ["", " ", "a b", "$HOME", "*", "'", '"', "\\", "\n", "-n", "é", ";", "&&"]
    code = "import sys; print(sys.argv[1:])"
    assert execute(workspace, "python3", "-c", code, *odd).output == f"{odd}\n"


def test_exec_runs_a_command_in_a_shell_of_choice(workspace: Workspace) -> None:
    def run(**args: object) -> str:
        return workspace.call(ToolCall("exec", args)).output

    assert run(command="echo $0 x | cat") == "/bin/sh x\n"
    assert run(command="echo ${BASH_VERSION:+bash}", shell=["bash", "-c"]) == "bash\n"
    assert run(command="print(6 * 7)", shell=["python3", "-c"]) == "42\n"


def test_exec_is_apart_from_the_shell(workspace: Workspace) -> None:
    workspace.run("cd /tmp; plain=1; export given=1; f() { :; }")
    assert execute(workspace, "sh", "-c", "pwd; echo [$plain$given]").output == "/work\n[]\n"
    execute(workspace, "sh", "-c", "cd /usr; export other=1; exit 3")
    assert workspace.run("pwd; echo [$other]").output == "/tmp\n[]\n"


def test_exec_cwd_and_env(workspace: Workspace) -> None:
    workspace.run("mkdir -p sub")
    assert execute(workspace, "pwd", cwd="/tmp").output == "/tmp\n"
    assert execute(workspace, "pwd", cwd="sub").output == "/work/sub\n"
    absent = execute(workspace, "pwd", cwd="/absent")
    assert (absent.exit_code, absent.stdout) == (127, b"")
    assert "/absent" in absent.output
    result = execute(workspace, "sh", "-c", 'echo "$A|$B|$HOME"', env={"A": "a b\nc", "B": "", "HOME": "/tmp"})
    assert result.output == "a b\nc||/tmp\n"
    assert "A=" not in execute(workspace, "env").output
    workspace.run("mkdir -p /tmp/bin; printf '#!/bin/sh\\necho mine\\n' > /tmp/bin/prog; chmod +x /tmp/bin/prog")
    assert execute(workspace, "prog", env={"PATH": "/tmp/bin:/usr/bin:/bin"}).output == "mine\n"
    assert execute(workspace, "prog").exit_code == 127


@pytest.mark.parametrize(
    ("argv", "code", "reason"),
    [
        (["true"], 0, ExitReason.EXITED),
        (["sh", "-c", "exit 42"], 42, ExitReason.EXITED),
        (["sh", "-c", "kill -9 $$"], 137, ExitReason.SIGNALED),
        (["sh", "-c", "kill -TERM $$"], 143, ExitReason.SIGNALED),
        (["python3", "-c", "import os; os.abort()"], 134, ExitReason.SIGNALED),
        (["no-such-program"], 127, ExitReason.EXITED),
        (["/etc/hostname"], 126, ExitReason.EXITED),
        (["/etc"], 126, ExitReason.EXITED),
        ([""], 127, ExitReason.EXITED),
    ],
)
def test_exec_ends(workspace: Workspace, argv: list[str], code: int, reason: ExitReason) -> None:
    result = execute(workspace, *argv)
    assert (result.exit_code, result.exit_reason) == (code, reason)
    if code in (126, 127):
        assert result.stderr


@pytest.mark.parametrize(
    ("code", "output", "exit_code"),
    [
        ("1 + 1", "2\n", 0),
        ("x = 1", "", 0),
        ("x = 1\nx", "1\n", 0),
        ("None", "", 0),
        ("'text'", "'text'\n", 0),
        ("print('a'); 'b'", "a\n'b'\n", 0),
        ("for i in range(3): print(i)", "0\n1\n2\n", 0),
        ("if True:\n    y = 5\ny * 2", "10\n", 0),
        ("def f():\n    return 7\nf()", "7\n", 0),
        ("x = [\n 1,\n 2]\nx", "[1, 2]\n", 0),
        ("import sys; print('e', file=sys.stderr)", "e\n", 0),
        ("# nothing", "", 0),
        ("", "", 0),
        ("print('ünïcode ☃')", "ünïcode ☃\n", 0),
        ("'''a\nb'''", "'a\\nb'\n", 0),
        ("__name__", "'__main__'\n", 0),
        ("_ = 5; 3\n_", "5\n", 0),
        ("1/0", "ZeroDivisionError: division by zero\n", 1),
        ("1 +", "SyntaxError: invalid syntax\n", 1),
        ("nothing_here", "NameError: name 'nothing_here' is not defined\n", 1),
        ("raise SystemExit(4)", "", 4),
        ("import sys; sys.exit()", "", 0),
        ("import sys; sys.exit('why')", "why\n", 1),
        ("raise KeyboardInterrupt", "KeyboardInterrupt\n", 1),
        ("await_ = 1; await_", "1\n", 0),
    ],
)
def test_python_shows_values_and_exceptions(workspace: Workspace, code: str, output: str, exit_code: int) -> None:
    result = python(workspace, code)
    assert result.exit_code == exit_code
    assert result.exit_reason is ExitReason.EXITED
    assert result.output.endswith(output)
    if exit_code == 1 and "exit" not in code:
        assert output.encode() in result.stderr
    else:
        assert result.output == output
    assert python(workspace, "'still'").output == "'still'\n"


def test_python_keeps_its_state(workspace: Workspace) -> None:
    python(workspace, "import math\nclass A:\n    n = 3\ndef f(x): return A.n * x\nx = 41")
    assert python(workspace, "f(x) + math.floor(1.5)").output == "124\n"
    assert "1/0" in python(workspace, "def g():\n    1/0\ng()").output  # the source line is in the traceback
    for code in ("1/0", "import sys; sys.exit(3)", "1 +"):
        python(workspace, code)
        assert python(workspace, "x").output == "41\n"
    assert python(workspace, "while True: x += 1", timeout=1).exit_reason is ExitReason.TIMEOUT
    assert python(workspace, "x > 41 and f(1)").output == "3\n"
    python(workspace, "import pickle; data = pickle.dumps(A())")
    assert python(workspace, "pickle.loads(data).n").output == "3\n"
    python(workspace, "import os; os.chdir('/tmp')")
    assert python(workspace, "os.getcwd()").output == "'/tmp'\n"
    assert workspace.run("pwd").output == "/work\n"


def test_python_threads_and_children_go_on(workspace: Workspace) -> None:
    tick = "def tick():\n    while True: ticks.append(1); time.sleep(0.01)\n"
    start = "threading.Thread(target=tick, daemon=True).start()"
    python(workspace, f"import threading, time\nticks = []\n{tick}{start}")
    assert until(lambda: int(python(workspace, "len(ticks)").output) > 5)
    assert python(workspace, "import subprocess; subprocess.run(['echo', 'hi']).returncode").output == "hi\n0\n"
    assert (
        python(workspace, "import multiprocessing as m; m.get_context('fork').Pool(2).map(abs, [-1, -2])").output
        == "[1, 2]\n"
    )


def test_signals_and_time_are_ordinary_in_tools(workspace: Workspace) -> None:
    blocked = "grep -E 'SigBlk|SigIgn' /proc/self/status"
    for tool in TOOLS:
        for line in TOOLS[tool](workspace, blocked).splitlines():
            mask = int(line.split()[1], 16)
            pythons_own = 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)  # os.system() passes on what it ignores
            assert mask & ((1 << 31) - 1) & ~(pythons_own if tool == "python" else 0) == 0, (tool, line)
    began = time.time()
    assert abs(float(workspace.run("date +%s.%N").output) - began) < 60
    assert ctypes.sizeof(ctypes.c_void_p) == 8
