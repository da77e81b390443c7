"""What commands look at, by name and arguments. An argument is None where it is not known before the shell runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from bunshin_gym.frozen import NOTHING_GIVEN, Given
from bunshin_gym.looks.look import NOTHING, Look
from bunshin_gym.looks.plain import PLAIN
from bunshin_gym.looks.taken import left

__all__ = ["Args", "inline_code", "look_of_command", "reads_code", "wrapped"]

Args = Sequence[str | None]

CLOCK, RANDOM, PIDS, NETWORK = Look("clock"), Look("randomness"), Look("process ids"), Look("network")
CHANCE = Look("chance")  # that no seed reaches
MACHINE, RUNNING, TIMES = Look("the machine"), Look(leaves_running=True), Look(strict="times")
INODES, UNORDERED = Look(strict="inodes"), Look(unordered=True)


def _all(look: Look, names: str) -> dict[str, Look]:
    return dict.fromkeys(names.split(), look)


# Those that look whatever they are asked.
_ALWAYS: Mapping[str, Look] = {
    **_all(
        CLOCK,
        "time times uptime cal ncal at batch watch timedatectl hwclock w who users last lastlog chronyc "
        "ntpdate useradd usermod",
    ),
    **_all(RANDOM, "uuidgen mktemp tempfile pwgen ssh-keygen gpg gpg2 makepasswd mkpasswd htpasswd passwd chpasswd"),
    **_all(PIDS, "ps top htop pgrep pidof pstree lsof fuser atop iotop"),
    **_all(MACHINE, "free vmstat iostat mpstat dmesg df journalctl sar numastat"),
    **_all(
        NETWORK,
        "curl wget ssh scp sftp ftp lftp nc ncat netcat telnet ping ping6 dig host nslookup traceroute whois ss "
        "netstat aria2c gh docker podman kubectl helm aws gcloud az apt apt-get aptitude apk dnf yum pacman snap brew "
        "pipx uv poetry pdm gem bundle composer npx",
    ),
    **_all(
        RUNNING,
        "nohup setsid daemonize disown coproc screen tmux systemctl start-stop-daemon supervisord pm2 crond "
        "cron apachectl apache2ctl pg_ctl pg_ctlcluster mysqld_safe dockerd inotifywait",
    ),
    **_all(UNORDERED, "rg ag ack fd fdfind tree ctags cloc tokei"),
    **_all(TIMES | UNORDERED, "rsync tar zip cpio pax du"),
    **_all(TIMES, "stat ar ccache make gmake ninja scons meson bazel bazelisk waf cmake ll"),
}

_SHELLS = {"bash", "sh", "dash", "zsh", "ksh", "ash", "rbash"}
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*")
# Programs that run the command that follows their options, and which of their options take a value.
_WRAPPERS: Mapping[str, str] = {
    "sudo": "ugpCDRTh",
    "env": "uSC",
    "nice": "n",
    "ionice": "cnp",
    "timeout": "ks",
    "xargs": "aEIiLlnPsd",
    "exec": "a",
    "command": "",
    "builtin": "",
    "stdbuf": "ioe",
    "strace": "eopPsuaIOS",
    "ltrace": "eop",
    "doas": "uC",
    "chroot": "",
    "busybox": "",
    "unbuffer": "",
    "chrt": "",
    "taskset": "",
    "setarch": "",
    "fakeroot": "",
    "runuser": "ug",
    "catchsegv": "",
    "faketime": "f",
    "parallel": "j",
    "flock": "wE",
    "prlimit": "",
}
_BEFORE_COMMAND = {"timeout": 1, "chroot": 1, "taskset": 1, "flock": 1, "faketime": 1}

_GIT_NETWORK = {"clone", "fetch", "pull", "push", "ls-remote", "submodule", "remote-update", "lfs"}
_GIT_CLOCK = {
    "commit",
    "merge",
    "rebase",
    "cherry-pick",
    "revert",
    "am",
    "stash",
    "commit-tree",
    "notes",
    "gc",
    "bisect",
}
_GIT_STASH_QUIET = {"list", "show", "pop", "apply", "drop", "clear"}  # these make no commit
_GIT_TIMES = {"diff-files", "diff-index"}
_GIT_VALUES = {"-C", "-c", "--git-dir", "--work-tree", "--namespace"}
# Of each: the options that take code, and what it looks at by what it is recognised by.
_INTERPRETERS: Mapping[str, tuple[str, tuple[tuple[Look, re.Pattern[str]], ...]]] = {
    "perl": (
        "e",
        (
            (CLOCK, re.compile(r"\btime\b|localtime|gmtime", re.I)),
            (RANDOM, re.compile(r"\brand\b", re.I)),
            (MACHINE, re.compile(r"\$\$|getppid|HiRes|socket", re.I)),
        ),
    ),
    "ruby": (
        "e",
        (
            (CLOCK, re.compile(r"\bTime\b")),
            (RANDOM, re.compile("SecureRandom")),
            (CHANCE, re.compile(r"\brand\b|(?<!Secure)Random")),
            (MACHINE, re.compile(r"\$\$|Process\.|socket|Net::")),
        ),
    ),
    "node": (
        "ep",
        (
            (CLOCK, re.compile("Date")),
            (RANDOM, re.compile("random|crypto", re.I)),
            (MACHINE, re.compile(r"process\.(?:pid|hrtime|uptime|memory)|performance|http|net\b|setInterval")),
        ),
    ),
    "php": ("r", ((MACHINE, re.compile(r"\btime\(|\bdate\(|rand|uniqid|getmypid|microtime|fsockopen|curl")),)),
    "lua": ("e", ((MACHINE, re.compile(r"os\.(?:time|clock|date)|math\.random")),)),
}
_PATHS = re.compile(
    r"/dev/u?random\b|/proc/sys/kernel/random/uuid\b|/proc/(?!(?:cpuinfo|version|filesystems)\b)|/sys/(?!\*)"
    r"|/dev/(?:tcp|udp)/"
)


def look_of_command(name: str, args: Args, given: Given = NOTHING_GIVEN) -> Look:
    """What a command looks at beside what is `given`, but for the commands that it runs itself (see `wrapped`)."""
    look = NOTHING
    for part in _looks_of_command(name, args):
        look |= left(part, name, args, given)
    return look


def _looks_of_command(name: str, args: Args) -> Iterator[Look]:
    yield _ALWAYS.get(name, NOTHING)
    for arg in args:
        if arg and ("/dev/" in arg or "/proc/" in arg or "/sys/" in arg):
            for found in _PATHS.finditer(arg):
                yield RANDOM if "random" in found[0] else NETWORK if "tcp" in found[0] or "udp" in found[0] else MACHINE
    particular = _PARTICULAR.get(name)
    if particular is not None:
        yield particular(args)
    if name in _INTERPRETERS:
        yield from _interpreted(*_INTERPRETERS[name], args)
    if _PYTHON.fullmatch(name):
        yield _python(args)
    yield _unread(name, args)


def _unread(name: str, args: Args) -> Look:
    """Whether the command is a program of which nothing is known, or runs one."""
    first = next((arg for arg in args if arg is None or not arg.startswith("-")), "")
    if name in _SHELLS or name in _INTERPRETERS or _PYTHON.fullmatch(name):
        options, module = _flags(args), "-m" in args
        inline = "c" in options or any(f"-{letter}" in args for letter in _INTERPRETERS.get(name, ("",))[0])
        return Look(unread=name) if module or (first and not inline) else NOTHING
    listed = not name or name in PLAIN or name in _ALWAYS or name in _PARTICULAR or name in _WRAPPERS
    return NOTHING if listed or name == "eval" else Look(unread=name)


def wrapped(name: str, args: Args) -> list[tuple[str | None, Args]]:
    """The commands that this one runs: name (None: not known) and arguments of each."""
    if name == "find":
        acts = ("-exec", "-execdir", "-ok", "-okdir")
        starts = [start for start, arg in enumerate(args[:-1]) if arg in acts]
        return [(args[start + 1], args[start + 2 :]) for start in starts]
    values = _WRAPPERS.get(name)
    if values is None:
        return []
    rest = list(args)
    while rest:
        first = rest[0]
        if first is None:
            return [(None, rest[1:])]
        if first == "--":
            rest.pop(0)
            break
        if name == "env" and (first == "-" or re.fullmatch(r"\w+=.*", first, re.S)):
            rest.pop(0)
        elif first.startswith("-") and len(first) > 1:
            rest.pop(0)
            if not first.startswith("--") and first[-1] in values and len(first) == 2 and rest:
                rest.pop(0)
        else:
            break
    rest = rest[_BEFORE_COMMAND.get(name, 0) :]
    return [(rest[0], rest[1:])] if rest else []


def inline_code(name: str, args: Args) -> tuple[str, str | None] | None:
    """The code that a command line holds: ("shell" or "python", its text or None where that is not known)."""
    if name == "eval":
        known = [arg for arg in args if arg is not None]
        return ("shell", " ".join(known) if len(known) == len(args) else None)
    python = _PYTHON.fullmatch(name) is not None
    if not python and name not in _SHELLS and name not in ("su", "script"):
        return None
    for arg, text in pairwise(args):
        if arg is not None and re.fullmatch(r"-\w*c", arg):
            return ("python" if python else "shell", text)
        if python and (arg is None or not arg.startswith("-")):
            return None  # a program in a file; what follows is for it
    return None


def reads_code(name: str, args: Args) -> str | None:
    """ "shell" or "python" where the command runs what its standard input says."""
    plain = [arg for arg in args if arg is None or not arg.startswith("-") or arg == "-"]
    if plain and plain[0] != "-":
        return None
    if name in _SHELLS:
        return "shell"
    return "python" if _PYTHON.fullmatch(name) else None


def _flags(args: Args) -> str:
    """The letters of all short options."""
    return "".join(arg[1:] for arg in args if arg and arg.startswith("-") and not arg.startswith("--"))


def _has(args: Args, *words: str) -> bool:
    return any(arg is not None and arg.startswith(words) for arg in args)


_ABSOLUTE = re.compile(r"@\d|\b\d{4}-\d\d?-\d\d?\b|\b\d{1,2}/\d{1,2}/\d{4}\b")


def _date(args: Args) -> Look:
    values = [arg for arg in args if arg is not None]
    for number, arg in enumerate(values):
        if arg in ("-r", "--reference") or arg.startswith("--reference="):
            return TIMES
        text = values[number + 1] if arg in ("-d", "--date") and number + 1 < len(values) else None
        text = arg.removeprefix("--date=") if arg.startswith("--date=") else text
        if text is not None and _ABSOLUTE.search(text) and None not in args:
            return NOTHING
    return CLOCK


def _ls(args: Args) -> Look:
    flags = _flags(args)
    look = UNORDERED if "U" in flags or "f" in flags else NOTHING
    if "i" in flags or _has(args, "--inode"):
        return look | INODES
    if any(letter in flags for letter in "lgontcus") or _has(args, "--full-time", "--time", "--sort=t", "--size"):
        return look | TIMES
    return look


def _find(args: Args) -> Look:
    look = UNORDERED
    if _has(args, "-inum", "-samefile", "-links"):
        look |= INODES
    if _has(args, "-mmin", "-mtime", "-amin", "-atime", "-cmin", "-ctime"):
        look |= CLOCK | TIMES
    telling = ("-newer", "-anewer", "-cnewer", "-printf", "-ls", "-fls", "-fprintf", "-used")
    return look | TIMES if _has(args, *telling) else look


def _grep(args: Args) -> Look:
    recursive = any(letter in _flags(args) for letter in "rR") or _has(args, "--recursive", "--dereference-recursive")
    return UNORDERED if recursive else NOTHING


def _test(args: Args) -> Look:
    return TIMES if any(arg in ("-nt", "-ot", "-N") for arg in args) else INODES if "-ef" in args else NOTHING


def _copy(args: Args) -> Look:
    return TIMES if "u" in _flags(args) or _has(args, "--update") else NOTHING


def _diff(args: Args) -> Look:
    return TIMES if any(letter in _flags(args) for letter in "ucN") or _has(args, "--unified", "--context") else NOTHING


def _git(args: Args) -> Look:
    words = list(args)
    while words and (words[0] is None or words[0].startswith("-")):
        first = words.pop(0)
        if first in _GIT_VALUES and words:
            words.pop(0)
    command, rest = (words[0], words[1:]) if words else (None, [])
    if command in _GIT_NETWORK:
        return NETWORK
    if command in _GIT_CLOCK and not (command == "stash" and rest and rest[0] in _GIT_STASH_QUIET):
        return CLOCK
    if command == "tag" and any(letter in _flags(rest) for letter in "asm"):
        return CLOCK
    if command in _GIT_TIMES or (command == "ls-files" and _has(rest, "--debug")):
        return TIMES
    return (
        CLOCK
        if _has(rest, "--date=relative", "--relative-date", "--since", "--until", "--after", "--before")
        else NOTHING
    )


def _pip(args: Args) -> Look:
    command = next((arg for arg in args if arg and not arg.startswith("-")), None)
    return NETWORK if command in ("install", "download", "index", "search", "wheel", "lock") else NOTHING


def _npm(args: Args) -> Look:
    command = next((arg for arg in args if arg and not arg.startswith("-")), None)
    quiet = {
        "test",
        "t",
        "run",
        "run-script",
        "start",
        "ls",
        "list",
        "root",
        "prefix",
        "pkg",
        "config",
        "version",
        None,
    }
    return NOTHING if command in quiet else NETWORK


def _conda(args: Args) -> Look:
    command = next((arg for arg in args if arg and not arg.startswith("-")), None)
    return NOTHING if command in ("list", "info", "config", "env", "activate", "deactivate", "init", None) else NETWORK


def _nginx(args: Args) -> Look:
    return NOTHING if any(letter in _flags(args) for letter in "tTvVh?") else RUNNING


def _service(args: Args) -> Look:
    return PIDS if "status" in args or "--status-all" in args else RUNNING


def _gzip(args: Args) -> Look:
    # It writes the time of the file into what it makes.
    return NOTHING if any(letter in _flags(args) for letter in "dltnVh") or _has(args, "--") else TIMES


def _sql(args: Args) -> Look:
    text = " ".join(arg or "" for arg in args)
    found = re.search(
        r"\b(?:now|today)\b'|\bnow\s*\(|\bcurrent_(?:date|time)|\bcurdate|\brand(?:om|omblob)?\s*\(", text, re.I
    )
    return CLOCK if found else NOTHING


def _go(args: Args) -> Look:
    return (
        NETWORK if args[:1] == ["get"] or list(args[:2]) == ["mod", "download"] or args[:1] == ["install"] else NOTHING
    )


def _cargo(args: Args) -> Look:
    return NETWORK if args[:1] and args[0] in ("install", "fetch", "update", "add", "search", "publish") else NOTHING


def _openssl(args: Args) -> Look:
    makes = {"rand", "genrsa", "gendsa", "genpkey", "req", "dhparam", "ecparam", "enc", "s_client", "s_server", "speed"}
    makes |= {"passwd", "pkcs12", "ca", "cms", "smime", "ts", "x509"}
    if args[:1] == ["x509"] and not _has(args, "-req", "-CA", "-signkey", "-checkend"):
        return NOTHING
    return RANDOM if args[:1] and (args[0] is None or args[0] in makes) else NOTHING


def _shuf(args: Args) -> Look:
    return NOTHING if _has(args, "--random-source") else RANDOM


def _sort(args: Args) -> Look:
    return RANDOM if "R" in _flags(args) or _has(args, "--random-sort", "--sort=random") else NOTHING


def _type(args: Args) -> Look:
    # Whether bash has looked the command up before is not in the state.
    return NOTHING if any(letter in _flags(args) for letter in "tpP") else Look("bash's memory of where commands are")


def _kill(args: Args) -> Look:
    # A number that is one process here may be another, or none, in another history of the state.
    return NOTHING if "l" in _flags(args) or all(arg and arg[0] in "-%" for arg in args) else PIDS


def _jobs(args: Args) -> Look:
    return PIDS if any(letter in _flags(args) for letter in "lp") else NOTHING


def _awk(args: Args) -> Look:
    text = " ".join(arg or "" for arg in args)
    if "PROCINFO" in text:
        return PIDS
    if re.search(r"\bsrand\(\s*\)|systime", text):
        return CLOCK
    return CLOCK if "strftime(" in text and not re.search(r"strftime\([^)]*,", text) else NOTHING


def _redis_server(args: Args) -> Look:
    return RUNNING if "--daemonize" in args else NOTHING


def _daemon(letters: str) -> Callable[[Args], Look]:
    def look(args: Args) -> Look:
        return (
            RUNNING
            if any(letter in _flags(args) for letter in letters) or _has(args, "--daemon", "--fork")
            else NOTHING
        )

    return look


def _interpreted(options: str, suspicious: Sequence[tuple[Look, re.Pattern[str]]], args: Args) -> Iterator[Look]:
    if not any(arg and re.fullmatch(rf"-\w*[{options}]", arg) for arg in args):
        return
    if None in args:
        yield MACHINE
    for look, pattern in suspicious:
        if any(arg and pattern.search(arg) for arg in args):
            yield look


def _python(args: Args) -> Look:
    for number, arg in enumerate(args):
        if arg == "-m":
            module = args[number + 1] if number + 1 < len(args) else None
            if module == "pip":
                return _pip(args[number + 2 :])
            if module in ("timeit", "uuid", "cProfile", "profile", "asyncio"):
                return CLOCK
            return NOTHING
        if arg is None or not arg.startswith("-"):
            return NOTHING
    return NOTHING


_PARTICULAR: Mapping[str, Callable[[Args], Look]] = {
    "date": _date,
    "ls": _ls,
    "dir": _ls,
    "vdir": lambda args: TIMES,
    "find": _find,
    "grep": _grep,
    "egrep": _grep,
    "fgrep": _grep,
    "zgrep": _grep,
    "test": _test,
    "[": _test,
    "cp": _copy,
    "mv": _copy,
    "install": _copy,
    "diff": _diff,
    "git": _git,
    "pip": _pip,
    "pip3": _pip,
    "npm": _npm,
    **dict.fromkeys(("conda", "mamba", "micromamba"), _conda),
    "nginx": _nginx,
    "gzip": _gzip,
    "service": _service,
    **dict.fromkeys(("sqlite3", "mysql", "mariadb", "psql", "duckdb"), _sql),
    "yarn": _npm,
    "pnpm": _npm,
    "go": _go,
    "cargo": _cargo,
    "openssl": _openssl,
    "shuf": _shuf,
    "sort": _sort,
    "jobs": _jobs,
    "kill": _kill,
    "type": _type,
    "hash": _type,
    "awk": _awk,
    "gawk": _awk,
    "mawk": _awk,
    "redis-server": _redis_server,
    "gunicorn": _daemon("D"),
    "uwsgi": _daemon("d"),
    "mongod": _daemon(""),
    "memcached": _daemon("d"),
    "sshd": _daemon(""),
}
