"""The commands the dummy engine's shell knows. Each takes the session, its argument vector and its streams."""

from __future__ import annotations

import posixpath
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from bunshin_gym.engines.dummy_shell import Io, ShellExit, run_source

if TYPE_CHECKING:
    from bunshin_gym.engines.dummy_session import Session

__all__ = ["COMMANDS", "seconds_of"]

Command = Callable[["Session", list[str], Io], int]
COMMANDS: dict[str, Command] = {}


def _command(*names: str) -> Callable[[Command], Command]:
    def enter(function: Command) -> Command:
        COMMANDS.update(dict.fromkeys(names, function))
        return function

    return enter


def _options(argv: list[str], known: str) -> tuple[set[str], list[str]]:
    """Single-letter options in front, and the rest. Raises ValueError for one that is not known."""
    flags: set[str] = set()
    rest = argv[1:]
    while rest and rest[0].startswith("-") and len(rest[0]) > 1:
        option = rest.pop(0)
        if option == "--":
            break
        for letter in option[1:]:
            if letter not in known:
                raise ValueError(letter)
            flags.add(letter)
    return flags, rest


def _with_options(known: str) -> Callable[[Callable[[Session, set[str], list[str], Io], int]], Command]:
    def wrap(function: Callable[[Session, set[str], list[str], Io], int]) -> Command:
        def command(session: Session, argv: list[str], io: Io) -> int:
            try:
                flags, rest = _options(argv, known)
            except ValueError as error:
                io.err(f"{argv[0]}: option -{error} is not supported by the dummy engine\n".encode())
                return 2
            return function(session, flags, rest, io)

        return command

    return wrap


def seconds_of(text: str) -> float | None:
    """Seconds of `5`, `0.2`, `3s`, `1m`, `infinity`; None where it is none of these."""
    if text in ("inf", "infinity"):
        return 1e9
    match = re.fullmatch(r"(\d+\.?\d*|\.\d+)([smhd]?)", text)
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]] if match else None


def _inputs(session: Session, label: str, names: list[str], io: Io) -> tuple[list[tuple[str, bytes]], int]:
    """The contents of the files named, or standard input; and 1 if one could not be read."""
    contents, status = [], 0
    for name in names or ["-"]:
        try:
            contents.append((name, io.stdin if name == "-" else session.files.read(session.path(name))))
        except OSError as error:
            io.err(f"{label}: {name}: {error.strerror}\n".encode())
            status = 1
    return contents, status


# -- the shell's own


@_command(":", "true")
def _true(session: Session, argv: list[str], io: Io) -> int:
    return 0


@_command("false")
def _false(session: Session, argv: list[str], io: Io) -> int:
    return 1


@_command("exit")
def _exit(session: Session, argv: list[str], io: Io) -> int:
    raise ShellExit(int(argv[1]) & 255 if len(argv) > 1 and argv[1].lstrip("-").isdigit() else session.status)


@_command("cd")
def _cd(session: Session, argv: list[str], io: Io) -> int:
    target = argv[1] if len(argv) > 1 else session.lookup("HOME")
    if target == "-":
        target = session.lookup("OLDPWD")
        io.out(target.encode() + b"\n")
    path = session.path(target)
    if not session.files.is_dir(path):
        why = "Not a directory" if session.files.exists(path) else "No such file or directory"
        io.err(f"bash: cd: {target}: {why}\n".encode())
        return 1
    session.variables["OLDPWD"] = session.cwd
    session.cwd = path
    return 0


@_command("pwd")
def _pwd(session: Session, argv: list[str], io: Io) -> int:
    io.out(session.cwd.encode() + b"\n")
    return 0


@_command("export")
def _export(session: Session, argv: list[str], io: Io) -> int:
    for argument in argv[1:]:
        name, equals, value = argument.partition("=")
        if equals:
            session.variables[name] = value
        session.exported.add(name)
    return 0


@_command("unset")
def _unset(session: Session, argv: list[str], io: Io) -> int:
    for name in argv[1:]:
        session.variables.pop(name, None)
        session.exported.discard(name)
    return 0


@_command("env")
def _env(session: Session, argv: list[str], io: Io) -> int:
    for name in sorted(session.exported & session.variables.keys()):
        io.out(f"{name}={session.variables[name]}\n".encode())
    return 0


@_command("read")
def _read(session: Session, argv: list[str], io: Io) -> int:
    line, newline, _ = io.stdin.partition(b"\n")
    session.variables[argv[-1] if len(argv) > 1 else "REPLY"] = line.decode(errors="replace").strip()
    return 0 if newline else 1


@_command("bash", "sh")
def _bash(session: Session, argv: list[str], io: Io) -> int:
    if len(argv) < 3 or argv[1] != "-c":
        io.err(f"{argv[0]}: only -c is supported by the dummy engine\n".encode())
        return 2
    child = session.subshell()
    child.variables = {n: v for n, v in child.variables.items() if n in child.exported}
    try:
        return run_source(child, argv[2], io)
    except ShellExit as exit_:
        return exit_.code


@_command("test", "[")
def _test(session: Session, argv: list[str], io: Io) -> int:
    args = argv[1:]
    if argv[0] == "[":
        if args[-1:] != ["]"]:
            io.err(b"bash: [: missing `]'\n")
            return 2
        args = args[:-1]
    negated = args[:1] == ["!"] and len(args) > 1
    result = _holds(session, args[1:] if negated else args)
    if result is None:
        io.err(f"bash: {argv[0]}: {' '.join(args)}: not supported\n".encode())
        return 2
    return int(result == negated)


def _holds(session: Session, args: list[str]) -> bool | None:
    if len(args) < 2:
        return bool(args and args[0])
    if len(args) == 2:
        path, files = session.path(args[1]), session.files
        return {
            "-z": not args[1],
            "-n": bool(args[1]),
            "-e": files.exists(path),
            "-d": files.is_dir(path),
            "-f": files.exists(path) and not files.is_dir(path),
            "-s": files.exists(path) and not files.is_dir(path) and bool(files.read(path)),
        }.get(args[0])
    left, operator, right = args[:3]
    if operator in ("=", "==", "!="):
        return (left == right) != (operator == "!=")
    try:
        a, b = int(left), int(right)
    except ValueError:
        return None
    return {"-eq": a == b, "-ne": a != b, "-lt": a < b, "-le": a <= b, "-gt": a > b, "-ge": a >= b}.get(operator)


# -- processes and time


@_command("sleep")
def _sleep(session: Session, argv: list[str], io: Io) -> int:
    amounts = [seconds_of(argument) for argument in argv[1:]]
    if not amounts or None in amounts:
        io.err(f"sleep: invalid time interval {' '.join(argv[1:])!r}\n".encode())
        return 1
    session.sleep(sum(amount for amount in amounts if amount is not None))
    return 0


@_command("wait")
def _wait(session: Session, argv: list[str], io: Io) -> int:
    wanted = {int(pid) for pid in argv[1:] if pid.isdigit()}
    while left := [job.ends for job in session.live_jobs() if not wanted or job.pid in wanted]:
        session.sleep(max(0.0, min(left) - time.monotonic()))
    return 0


@_command("kill")
def _kill(session: Session, argv: list[str], io: Io) -> int:
    probe = argv[1:2] == ["-0"]
    status = 0
    for argument in argv[1:]:
        if argument.startswith("-"):
            continue
        job = next((j for j in session.live_jobs() if str(j.pid) == argument), None)
        if job is None:
            io.err(f"bash: kill: ({argument}) - No such process\n".encode())
            status = 1
        elif not probe:
            session.jobs.remove(job)
    return status


@_command("hostname")
def _hostname(session: Session, argv: list[str], io: Io) -> int:
    io.out(session.hostname.encode() + b"\n")
    return 0


# -- text


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b"}
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|0?([0-7]{1,3})|(.))", re.S)


def _unescape(text: str) -> bytes:
    result = bytearray()
    at = 0
    for match in _ESCAPE.finditer(text):
        result += text[at : match.start()].encode()
        if match[1] or match[2]:
            result.append((int(match[1], 16) if match[1] else int(match[2], 8)) & 255)
        else:
            result += _ESCAPES.get(match[3], match[0]).encode()
        at = match.end()
    return bytes(result + text[at:].encode())


@_command("echo")
def _echo(session: Session, argv: list[str], io: Io) -> int:
    args = argv[1:]
    newline, escapes = True, False
    while args and re.fullmatch(r"-[neE]+", args[0]):
        newline &= "n" not in args[0]
        escapes = "e" in args.pop(0)
    text = " ".join(args)
    io.out((_unescape(text) if escapes else text.encode()) + (b"\n" if newline else b""))
    return 0


@_command("printf")
def _printf(session: Session, argv: list[str], io: Io) -> int:
    if len(argv) < 2:
        io.err(b"printf: usage: printf format [arguments]\n")
        return 2
    pieces = re.findall(r"%[-0]?\d*(?:\.\d+)?[sdxc%]|[^%]+|%", argv[1])
    args = argv[2:]
    out = bytearray()
    while True:
        before = len(args)
        for piece in pieces:
            if piece == "%%":
                out += b"%"
            elif piece[0] == "%" and len(piece) > 1:
                value = args.pop(0) if args else ""
                out += _formatted(piece, value).encode()
            else:
                out += _unescape(piece)
        if not args or len(args) == before:
            break
    io.out(bytes(out))
    return 0


def _formatted(piece: str, value: str) -> str:
    if piece[-1] in "dx":
        number = int(value) if value.lstrip("-").isdigit() else 0
        return piece % number
    return (piece[:-1] + "s") % (value[:1] if piece[-1] == "c" else value)


@_command("seq")
def _seq(session: Session, argv: list[str], io: Io) -> int:
    try:
        numbers = [int(argument) for argument in argv[1:]]
        first, step, last = {1: (1, 1, *numbers), 2: (numbers[0], 1, numbers[-1]), 3: tuple(numbers)}[len(numbers)]
    except (ValueError, KeyError, IndexError):
        io.err(b"seq: one to three integers are supported\n")
        return 1
    io.out("".join(f"{i}\n" for i in range(first, last + (1 if step > 0 else -1), step or 1)).encode())
    return 0


@_command("cat")
@_with_options("")
def _cat(session: Session, flags: set[str], names: list[str], io: Io) -> int:
    if "/dev/zero" in names:
        session.sleep(1e9)
    contents, status = _inputs(session, "cat", names, io)
    for _, content in contents:
        io.out(content)
    return status


@_command("wc")
@_with_options("lwc")
def _wc(session: Session, flags: set[str], names: list[str], io: Io) -> int:
    contents, status = _inputs(session, "wc", names, io)
    rows = []
    for name, content in contents:
        counts = {"l": content.count(b"\n"), "w": len(content.split()), "c": len(content)}
        rows.append(([counts[f] for f in "lwc" if f in (flags or set("lwc"))], name))
    if len(rows) > 1:
        rows.append(([sum(column) for column in zip(*(row for row, _ in rows), strict=True)], "total"))
    # One number stands alone; several are set in columns, as wide as the largest (7 for standard input).
    widest = max((len(str(n)) for row, _ in rows for n in row), default=1)
    width = 0 if rows and len(rows[0][0]) == 1 and len(rows) == 1 else 7 if not names else widest
    for row, name in rows:
        line = " ".join(str(n).rjust(width) for n in row)
        io.out((line + (f" {name}" if name != "-" else "") + "\n").encode())
    return status


@_command("head", "tail")
def _head(session: Session, argv: list[str], io: Io) -> int:
    args, count = argv[1:], "10"
    if args[:1] == ["-n"]:
        count, args = args[1], args[2:]
    elif args and re.fullmatch(r"-(n)?\d+", args[0]):
        count = args.pop(0).lstrip("-n")
    contents, status = _inputs(session, argv[0], args, io)
    for _, content in contents:
        lines = content.splitlines(keepends=True)
        io.out(b"".join(lines[: int(count)] if argv[0] == "head" else lines[len(lines) - int(count) :]))
    return status


@_command("sort")
@_with_options("rnu")
def _sort(session: Session, flags: set[str], names: list[str], io: Io) -> int:
    contents, status = _inputs(session, "sort", names, io)
    lines = b"".join(content for _, content in contents).splitlines()
    number = re.compile(rb"\s*(-?\d+)")
    lines = sorted(set(lines) if "u" in flags else lines)
    if "n" in flags:
        lines.sort(key=lambda line: int(found[1]) if (found := number.match(line)) else 0)
    for line in reversed(lines) if "r" in flags else lines:
        io.out(line + b"\n")
    return status


@_command("grep")
@_with_options("qvci")
def _grep(session: Session, flags: set[str], rest: list[str], io: Io) -> int:
    pattern = re.compile(rest[0].encode(), re.I if "i" in flags else 0)
    contents, status = _inputs(session, "grep", rest[1:], io)
    hits = [
        (name, line)
        for name, content in contents
        for line in content.splitlines()
        if bool(pattern.search(line)) != ("v" in flags)
    ]
    if "c" in flags:
        io.out(b"%d\n" % len(hits))
    elif "q" not in flags:
        for name, line in hits:
            io.out((name.encode() + b":" if len(contents) > 1 else b"") + line + b"\n")
    return 2 if status else int(not hits)


@_command("tee")
def _tee(session: Session, argv: list[str], io: Io) -> int:
    for name in argv[1:]:
        session.files.write(session.path(name), io.stdin)
    io.out(io.stdin)
    return 0


# -- files


@_command("ls")
@_with_options("1aA")
def _ls(session: Session, flags: set[str], names: list[str], io: Io) -> int:
    status = 0
    for i, name in enumerate(names or ["."]):
        path = session.path(name)
        if not session.files.exists(path):
            io.err(f"ls: cannot access '{name}': No such file or directory\n".encode())
            status = 2
        elif not session.files.is_dir(path):
            io.out(name.encode() + b"\n")
        else:
            if len(names) > 1:
                io.out((f"\n{name}:\n" if i else f"{name}:\n").encode())
            shown = [".", ".."] if "a" in flags else []
            shown += [n for n in session.files.names(path) if flags & {"a", "A"} or not n.startswith(".")]
            io.out("".join(n + "\n" for n in shown).encode())
    return status


@_command("mkdir")
@_with_options("p")
def _mkdir(session: Session, flags: set[str], names: list[str], io: Io) -> int:
    status = 0
    for name in names:
        try:
            session.files.mkdir(session.path(name), parents="p" in flags)
        except OSError as error:
            io.err(f"mkdir: cannot create directory '{name}': {error.strerror}\n".encode())
            status = 1
    return status


@_command("rmdir")
def _rmdir(session: Session, argv: list[str], io: Io) -> int:
    for name in argv[1:]:
        path = session.path(name)
        if session.files.names(path):
            io.err(f"rmdir: failed to remove '{name}': Directory not empty\n".encode())
            return 1
        session.files.remove(path, recursive=True)
    return 0


@_command("rm")
@_with_options("rRf")
def _rm(session: Session, flags: set[str], names: list[str], io: Io) -> int:
    status = 0
    for name in names:
        try:
            session.files.remove(session.path(name), recursive=bool(flags & {"r", "R"}))
        except FileNotFoundError:
            if "f" not in flags:
                io.err(f"rm: cannot remove '{name}': No such file or directory\n".encode())
                status = 1
        except OSError as error:
            io.err(f"rm: cannot remove '{name}': {error.strerror}\n".encode())
            status = 1
    return status


@_command("touch")
def _touch(session: Session, argv: list[str], io: Io) -> int:
    for name in argv[1:]:
        path = session.path(name)
        if not session.files.exists(path):
            session.files.write(path, b"")
        else:
            session.files.touch(path)
    return 0


@_command("cp", "mv")
def _copy(session: Session, argv: list[str], io: Io) -> int:
    if len(argv) != 3 or argv[1].startswith("-"):
        io.err(f"{argv[0]}: exactly two names are supported by the dummy engine\n".encode())
        return 2
    source, target = session.path(argv[1]), session.path(argv[2])
    if session.files.is_dir(target):
        target = posixpath.join(target, posixpath.basename(source))
    if argv[0] == "mv":
        session.files.move(source, target)
    else:
        session.files.write(target, session.files.read(source))
    return 0
