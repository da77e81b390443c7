"""A random tree of processes: python3 random_tree.py SEED COUNT [every-kind]. Run inside a workspace.

Every process takes some state by chance. Whoever opens /tmp/tree-ask for reading makes the root ask all of them: each
writes what it sees of itself to /tmp/tree-answers/NUMBER.
"""

import ctypes
import fcntl
import hashlib
import mmap
import os
import random
import resource
import select
import signal
import socket
import struct
import sys
import termios
import threading
import time

seed, count = int(sys.argv[1]), int(sys.argv[2])
EVERY_KIND = sys.argv[3:] == ["every-kind"]  # each process takes some state of each kind
ANSWERS = "/tmp/tree-answers"
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p

# Made before the first fork, so that all have them in common; every process writes into its own places.
common = mmap.mmap(-1, 1 << 20)
common_file = os.memfd_create("common")
os.ftruncate(common_file, 1 << 20)
segment = libc.shmget(0, 1 << 18, 0o1600)
attached = libc.shmat(segment, None, 0)


class Node:
    """One process: its number, its state, and the pipes on which it is asked and answers."""

    def __init__(self, number: int, chance: random.Random) -> None:
        self.number = number
        self.chance = chance
        self.children: list[tuple[int, int, int]] = []
        self.kept: list[object] = []
        self.maps: list[mmap.mmap] = []
        self.files: list[int] = []
        self.events: list[int] = []
        self.pipes: list[tuple[int, int, int]] = []
        self.pairs: list[tuple[socket.socket, socket.socket]] = []
        self.terminals: list[tuple[int, int]] = []
        self.zombies: list[int] = []

    def take_state(self) -> None:
        kinds = [
            self.take_memory, self.take_file, self.take_event, self.take_pipe, self.take_pair,
            self.take_thread, self.take_signal, self.take_limit, self.take_place, self.take_copy,
            self.take_common, self.take_terminal, self.take_watch, self.take_epoll, self.take_lock,
            self.take_connection, self.take_zombie, self.take_memfd, self.take_timer,
        ]  # fmt: skip
        for take in kinds if EVERY_KIND else self.chance.choices(kinds, k=self.chance.randint(0, 8)):
            take()

    def take_memory(self) -> None:
        pages = self.chance.randint(1, 300)
        shared = self.chance.random() < 0.3
        memory = mmap.mmap(-1, pages * 4096, flags=mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE)
        for page in self.chance.sample(range(pages), self.chance.randint(0, pages)):
            memory[page * 4096 : page * 4096 + 16] = self.chance.randbytes(16)
        self.maps.append(memory)

    def take_file(self) -> None:
        path = f"/tmp/tree-file-{self.number}-{len(self.files)}"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | self.chance.choice([0, os.O_APPEND]))
        os.write(fd, self.chance.randbytes(self.chance.randint(0, 20000)))
        os.lseek(fd, self.chance.randint(0, 20000), os.SEEK_SET)
        if self.chance.random() < 0.3:
            os.unlink(path)
        self.files.append(fd)

    def take_event(self) -> None:
        self.events.append(os.eventfd(self.chance.randint(0, 1000), os.EFD_NONBLOCK))

    def take_pipe(self) -> None:
        reader, writer = os.pipe()
        size = self.chance.randint(0, 60000)
        os.write(writer, self.chance.randbytes(size) if size else b"")
        self.pipes.append((reader, writer, size))

    def take_pair(self) -> None:
        one, other = socket.socketpair(socket.AF_UNIX, self.chance.choice([socket.SOCK_STREAM, socket.SOCK_DGRAM]))
        for _ in range(self.chance.randint(0, 3)):
            one.send(self.chance.randbytes(self.chance.randint(1, 500)))
        self.pairs.append((one, other))

    def take_thread(self) -> None:
        event = threading.Event()
        threading.Thread(target=event.wait, daemon=True).start()
        self.kept.append(event)

    def take_signal(self) -> None:
        numbers = [signal.SIGUSR1, signal.SIGUSR2, signal.SIGRTMIN + 3, signal.SIGHUP]
        signal.pthread_sigmask(signal.SIG_BLOCK, self.chance.sample(numbers, 2))
        for number in self.chance.sample(numbers, 2):
            if number in signal.pthread_sigmask(signal.SIG_BLOCK, []):
                signal.pthread_kill(threading.main_thread().ident, number)
            else:
                signal.signal(number, self.chance.choice([signal.SIG_IGN, signal.SIG_DFL]))

    def take_limit(self) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (self.chance.randint(300, 900), 1000))
        os.nice(self.chance.randint(0, 5))

    def take_place(self) -> None:
        path = f"/tmp/tree-dir-{self.number}"
        os.makedirs(path, exist_ok=True)
        os.chdir(path)
        os.umask(self.chance.choice([0, 0o22, 0o77]))
        libc.prctl(15, f"node {self.number}".encode(), 0, 0, 0)

    def take_copy(self) -> None:
        for fds in (self.files, self.events):
            if fds:
                os.dup2(self.chance.choice(fds), self.chance.randint(100, 250))

    def take_common(self) -> None:
        for _ in range(20):
            at = self.chance.randrange(4096) * 64
            word = self.chance.randbytes(8)
            common[at : at + 8] = word
            os.pwrite(common_file, word, at)
            ctypes.memmove(attached + at % (1 << 18), word, 8)

    def take_terminal(self) -> None:
        master, slave = os.openpty()
        settings = termios.tcgetattr(slave)
        if self.chance.random() < 0.5:
            settings[3] &= ~(termios.ECHO | termios.ICANON)
        termios.tcsetattr(slave, termios.TCSANOW, settings)
        size = struct.pack("HHHH", self.chance.randint(1, 99), self.chance.randint(1, 200), 0, 0)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, size)
        os.write(master, self.chance.choice([b"", b"a line\n", b"half a line"]))
        self.terminals.append((master, slave))

    def take_watch(self) -> None:
        fd = libc.inotify_init1(os.O_NONBLOCK)
        for path in self.chance.sample(["/usr", "/usr/bin", "/etc", "/work"], 2):
            assert libc.inotify_add_watch(fd, path.encode(), self.chance.choice([0x100, 0x200, 0x2])) > 0

    def take_epoll(self) -> None:
        poll = select.epoll()
        for fd in self.events[:3]:
            poll.register(fd, self.chance.choice([select.EPOLLIN, select.EPOLLIN | select.EPOLLET]))
        self.kept.append(poll)

    def take_lock(self) -> None:
        fd = os.open(f"/tmp/tree-lock-{self.number}-{self.chance.random()}", os.O_RDWR | os.O_CREAT)
        if self.chance.random() < 0.5:
            fcntl.flock(fd, self.chance.choice([fcntl.LOCK_SH, fcntl.LOCK_EX]))
        else:
            fcntl.lockf(fd, fcntl.LOCK_EX, self.chance.randint(1, 100), self.chance.randint(0, 100))

    def take_connection(self) -> None:
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(5)
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
        if size := self.chance.randint(0, 3000):
            one.send(self.chance.randbytes(size))
            other.recv(1, socket.MSG_PEEK)  # it is across
        self.kept.append(listener)
        self.pairs.append((one, other))

    def take_zombie(self) -> None:
        if (pid := os.fork()) == 0:
            os._exit(self.chance.randint(0, 100))
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        self.zombies.append(pid)

    def take_memfd(self) -> None:
        fd = os.memfd_create(f"tree {self.number}", os.MFD_ALLOW_SEALING)
        os.write(fd, self.chance.randbytes(self.chance.randint(0, 9000)))
        fcntl.fcntl(fd, 1033, self.chance.choice([0, 2, 4, 8]))  # F_ADD_SEALS
        self.files.append(fd)

    def take_timer(self) -> None:
        fd = libc.timerfd_create(self.chance.choice([0, 1]), os.O_NONBLOCK)
        setting = struct.pack("qqqq", self.chance.randint(0, 9), 0, 100000, 0)
        assert libc.timerfd_settime(fd, 0, setting, None) == 0
        mask = ctypes.create_string_buffer(struct.pack("Q", 1 << self.chance.randint(30, 60)), 8)
        assert libc.syscall(289, -1, mask, 8, 0) >= 0  # signalfd4

    def see(self) -> str:
        """What is to be equal in every fork. Looking changes nothing."""
        lines = [
            f"pid {os.getpid()} parent {os.getppid()} group {os.getpgid(0)} session {os.getsid(0)}",
            f"cwd {os.getcwd()} nice {os.getpriority(os.PRIO_PROCESS, 0)}",
            f"limit {resource.getrlimit(resource.RLIMIT_NOFILE)}",
            f"threads {sorted(map(int, os.listdir('/proc/self/task')))}",
            f"blocked {sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, [])))}",
            f"pending {sorted(map(int, signal.sigpending()))}",
        ]
        with open("/proc/self/status") as status:
            lines += [line.rstrip() for line in status if line.split(":")[0] in ("Name", "Umask", "SigIgn", "SigCgt")]
        for memory in self.maps:
            lines.append(f"memory {hashlib.sha256(memory[:]).hexdigest()}")
        for fd in sorted(map(int, os.listdir("/proc/self/fd"))):
            lines.append(self.see_descriptor(fd))
        for reader, _, size in self.pipes:
            lines.append(f"pipe {reader} holds {size} {select.select([reader], [], [], 0)[0] != []}")
        for one, other in self.pairs:
            peeked = b""
            if select.select([other], [], [], 0)[0]:
                peeked = other.recv(100000, socket.MSG_PEEK)
            lines.append(f"pair {one.fileno()} {other.fileno()} {hashlib.sha256(peeked).hexdigest()}")
        shared = hashlib.sha256(common[:] + os.pread(common_file, 1 << 20, 0) + ctypes.string_at(attached, 1 << 18))
        lines.append(f"in common {shared.hexdigest()}")
        for master, slave in self.terminals:
            waiting = struct.unpack("i", fcntl.ioctl(slave, termios.FIONREAD, b"0000"))
            size = struct.unpack("HHHH", fcntl.ioctl(slave, termios.TIOCGWINSZ, bytes(8)))
            lines.append(f"terminal {master} {slave} {termios.tcgetattr(slave)} {size} {waiting} {os.ttyname(slave)}")
        for pid in self.zombies:
            result = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            lines.append(f"zombie {pid} {result and (result.si_code, result.si_status)}")
        return "\n".join(lines) + "\n"

    def see_descriptor(self, fd: int) -> str:
        try:
            link = os.readlink(f"/proc/self/fd/{fd}")
            with open(f"/proc/self/fdinfo/{fd}") as info:
                said = info.readlines()
            fields = dict(line.rstrip().split(":\t", 1) for line in said if ":\t" in line)
        except OSError:
            return "a descriptor of the listing itself"
        flags = int(fields["flags"], 8) & ~0o100000  # what is opened by a name is "large"
        text = f"fd {fd} flags {flags:o}"
        if link.startswith("/tmp/tree-file"):
            status = os.fstat(fd)
            content = hashlib.sha256(os.pread(fd, 100000, 0)).hexdigest()
            text += (
                f" at {fields['pos']} size {status.st_size} links {status.st_nlink} {link.split()[0][-30:]} {content}"
            )
            if status.st_nlink == 0:
                text = text.replace(link.split()[0][-30:], "deleted")
        elif link.startswith("anon_inode:"):
            text += f" {link} {fields.get('eventfd-count', '')} {fields.get('sigmask', '')} {fields.get('clockid', '')}"
            for line in sorted(said):
                words = line.split()
                if words[0] == "tfd:":
                    text += f" watches {words[1:6]}"
                elif words[0] == "inotify":
                    text += f" {words[1]} {words[4]}"
        elif link.startswith("/memfd:"):
            seals, status = fcntl.fcntl(fd, 1034), os.fstat(fd)  # F_GET_SEALS
            content = hashlib.sha256(os.pread(fd, 1 << 20, 0)).hexdigest()
            text += f" {link} seals {seals} at {fields['pos']} size {status.st_size} {content}"
        else:
            text += f" {link.partition(':')[0]}"
        locks = sorted(" ".join([*line.split()[2:5], *line.split()[7:]]) for line in said if line.startswith("lock:"))
        return " ".join([text, *locks])

    def serve(self, ask: int, answer: int) -> None:
        """Asked by a byte: answers, after all below have."""
        while os.read(ask, 1):
            with open(f"{ANSWERS}/.{self.number:03}", "w") as out:
                out.write(self.see())
            os.rename(f"{ANSWERS}/.{self.number:03}", f"{ANSWERS}/{self.number:03}")  # never seen half written
            for _, child_ask, child_answer in self.children:
                os.write(child_ask, b"?")
                os.read(child_answer, 1)
            os.write(answer, b"!")


def become(number: int, size: int, ask: int, answer: int) -> None:
    """Is a tree of `size` processes whose root has this number."""
    node = Node(number, random.Random(f"{seed} {number}"))
    chance = random.Random(f"{seed} {number} tree")
    if number and chance.random() < 0.4:
        os.setsid()
    elif number and chance.random() < 0.4:
        os.setpgid(0, 0)
    left, at = size - 1, number + 1
    while left:
        part = chance.randint(1, left)
        ask_pipe, answer_pipe = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(ask_pipe[1])
            os.close(answer_pipe[0])
            become(at, part, ask_pipe[0], answer_pipe[1])
            os._exit(0)
        os.close(ask_pipe[0])
        os.close(answer_pipe[1])
        os.read(answer_pipe[0], 1)  # it is complete
        node.children.append((pid, ask_pipe[1], answer_pipe[0]))
        left -= part
        at += part
    node.take_state()
    os.write(answer, b".")
    node.serve(ask, answer)


os.makedirs(ANSWERS)
os.mkfifo("/tmp/tree-ask")
ask, answer = os.pipe(), os.pipe()
root = os.fork()
if root == 0:
    os.close(ask[1])
    os.close(answer[0])
    become(0, count, ask[0], answer[1])
    os._exit(0)
os.close(ask[0])
os.close(answer[1])
os.read(answer[0], 1)
print("ready", flush=True)
while True:
    with open("/tmp/tree-ask", "w") as fifo:  # somebody asks
        os.write(ask[1], b"?")
        os.read(answer[0], 1)
    time.sleep(0.02)  # let the asker go before the name is opened again
