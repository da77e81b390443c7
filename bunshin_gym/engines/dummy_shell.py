"""The dummy engine's shell: a small, honest interpreter of a subset of bash over an in-memory file tree.

Understood: simple commands, `;` `&&` `||` `!` newlines and comments, pipelines, `( )` and `{ }`, assignments, quoting,
`$name` `${name}` `${name:-word}` `$?` `$$` `$!` `$(command)` `$((arithmetic))`, `*` and `?` in words, the redirections
`<` `>` `>>` `2>` `2>>` `2>&1` `>&2` `&>`, and `sleep N &`. Anything else is refused with exit code 2 and a line that
says so: the twin may know less than bash, but what it does know it does as bash does.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bunshin_gym.engines.dummy_session import Session

__all__ = ["Io", "ShellExit", "ShellSyntax", "matching", "run_source"]

Sink = Callable[[bytes], None]


class ShellSyntax(Exception):
    """The source is wrong, or beyond the subset."""


class ShellExit(Exception):
    """`exit` was called."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass
class Io:
    """A command's standard streams: what is left to read, and where output goes."""

    stdin: bytes
    out: Sink
    err: Sink


# -- words and tokens


@dataclass(frozen=True)
class Part:
    """A piece of a word: literal text, a variable, a command to substitute, or an arithmetic expression."""

    kind: str
    text: str
    quoted: bool
    default: str | None = None


Word = tuple[Part, ...]


@dataclass(frozen=True)
class Token:
    """A word, or an operator (`op` is then its text)."""

    op: str
    word: Word = ()


_OPERATOR = re.compile(r"&&|\|\||&>|[12]?>>|2>&1|1?>&2|[12]?>|<(?![<(])|[;&|()\n]")
_NAME = re.compile(r"[A-Za-z_]\w*")
_RESERVED = frozenset(
    {"if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "function", "select"}
    | {"[[", "time", "coproc"}
)


class _Lexer:
    def __init__(self, source: str) -> None:
        self.source = source
        self.at = 0

    def tokens(self) -> list[Token]:
        result: list[Token] = []
        while self.at < len(self.source):
            char = self.source[self.at]
            if char in " \t":
                self.at += 1
            elif self.source.startswith("\\\n", self.at):
                self.at += 2
            elif char == "#":
                end = self.source.find("\n", self.at)
                self.at = len(self.source) if end < 0 else end
            elif match := _OPERATOR.match(self.source, self.at):
                self.at = match.end()
                result.append(Token(match.group()))
            elif char == "<":
                raise ShellSyntax("here-documents and process substitution are not supported")
            else:
                result.append(Token("", self.word()))
        return result

    def word(self) -> Word:
        parts: list[Part] = []
        while self.at < len(self.source) and self.source[self.at] not in " \t\n;&|()<>":
            char = self.source[self.at]
            if char == "'":
                parts.append(Part("text", self.until("'"), True))
            elif char == '"':
                self.at += 1
                self.double(parts)
            elif char == "\\":
                escaped = self.source[self.at + 1 : self.at + 2]
                if escaped != "\n":
                    parts.append(Part("text", escaped, True))
                self.at += 2
            elif char == "$":
                parts.append(self.dollar(False))
            elif char == "`":
                raise ShellSyntax("backquotes are not supported: use $( )")
            else:
                parts.append(Part("text", char, False))
                self.at += 1
        return tuple(parts)

    def until(self, quote: str) -> str:
        end = self.source.find(quote, self.at + 1)
        if end < 0:
            raise ShellSyntax(f"unexpected end of file while looking for matching {quote}")
        text = self.source[self.at + 1 : end]
        self.at = end + 1
        return text

    def double(self, parts: list[Part]) -> None:
        parts.append(Part("text", "", True))
        while True:
            char = self.source[self.at : self.at + 1]
            if char == "":
                raise ShellSyntax('unexpected end of file while looking for matching "')
            if char == '"':
                self.at += 1
                return
            if char == "`":
                raise ShellSyntax("backquotes are not supported: use $( )")
            if char == "$":
                parts.append(self.dollar(True))
                continue
            if char == "\\" and self.source[self.at + 1 : self.at + 2] in ("$", "`", '"', "\\", "\n"):
                self.at += 1
                char = self.source[self.at].replace("\n", "")
            parts.append(Part("text", char, True))
            self.at += 1

    def dollar(self, quoted: bool) -> Part:
        rest = self.source[self.at + 1 :]
        if rest.startswith("(("):
            return Part("arithmetic", self.balanced(3, "))"), quoted)
        if rest.startswith("("):
            return Part("command", self.balanced(2, ")"), quoted)
        if rest.startswith("{"):
            inside = self.balanced(2, "}")
            match = re.fullmatch(r"([A-Za-z_]\w*|[?$!])(?::-(.*))?", inside, re.S)
            if match is None:
                raise ShellSyntax(f"${{{inside}}} is not supported")
            return Part("variable", match[1], quoted, match[2])
        match = _NAME.match(rest) or re.match(r"[?$!]", rest)
        if match is None:
            self.at += 1
            return Part("text", "$", quoted)
        self.at += 1 + match.end()
        return Part("variable", match.group(), quoted)

    def balanced(self, skip: int, end: str) -> str:
        """The text after `skip` characters up to the matching `end`; quotes are respected."""
        start = at = self.at + skip
        depth, quote = 0, ""
        opening = "{" if end == "}" else "("
        while at < len(self.source):
            char = self.source[at]
            if quote:
                quote = "" if char == quote else quote
            elif char in "'\"":
                quote = char
            elif depth == 0 and self.source.startswith(end, at):
                self.at = at + len(end)
                return self.source[start:at]
            elif char == opening:
                depth += 1
            elif char == end[0]:
                depth -= 1
            at += 1
        raise ShellSyntax(f"unexpected end of file while looking for matching {end}")


# -- the syntax tree


@dataclass
class Command:
    """A simple command, or a group (`body`), with its redirections in order."""

    words: list[Word] = field(default_factory=list)
    redirections: list[tuple[str, Word]] = field(default_factory=list)
    body: list[Item] | None = None
    subshell: bool = False


@dataclass
class Item:
    """A pipeline, what joins it to the one before (`&&`, `||` or `;`), and whether it is put in the background."""

    joint: str
    negated: bool
    commands: list[Command]
    background: bool = False


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0

    def peek(self) -> Token | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def op(self) -> str:
        token = self.peek()
        return token.op if token else ""

    def items(self, end: str = "") -> list[Item]:
        result: list[Item] = []
        joint = ";"
        while True:
            while self.op() == "\n":
                self.at += 1
            token = self.peek()
            if token is None or (end and (token.op == end or _plain(token.word) == end)):
                if joint != ";":
                    raise ShellSyntax(f"unexpected end after {joint}")
                if token is None and end:
                    raise ShellSyntax(f"unexpected end of file while looking for matching {end}")
                return result
            result.append(self.item(joint))
            joint = self.op() or ";"
            if joint == "&":
                result[-1].background = True
                joint = ";"
            elif joint == ")" and end == ")":
                joint = ";"
                continue
            elif joint not in (";", "\n", "&&", "||"):
                raise ShellSyntax(f"syntax error near unexpected token {joint!r}")
            joint = ";" if joint == "\n" else joint
            if self.peek() is not None:
                self.at += 1

    def item(self, joint: str) -> Item:
        token = self.peek()
        negated = token is not None and _plain(token.word) == "!"
        self.at += negated
        commands = [self.command()]
        while self.op() == "|":
            self.at += 1
            commands.append(self.command())
        return Item(joint, negated, commands)

    def command(self) -> Command:
        command = Command()
        token = self.peek()
        if token is not None and (token.op == "(" or _plain(token.word) == "{"):
            self.at += 1
            command.subshell = token.op == "("
            command.body = self.items(")" if command.subshell else "}")
            self.at += 1
        elif token is not None and _plain(token.word) in _RESERVED:
            raise ShellSyntax(f"{_plain(token.word)!r} is not supported")
        while (token := self.peek()) is not None:
            if not token.op and command.body is None:
                command.words.append(token.word)
                self.at += 1
            elif token.op in ("2>&1", "1>&2", ">&2"):
                command.redirections.append((token.op, ()))
                self.at += 1
            elif token.op and token.op[-1] in "<>":
                self.at += 1
                target = self.peek()
                if target is None or target.op:
                    raise ShellSyntax(f"syntax error: nothing to redirect to after {token.op}")
                command.redirections.append((token.op, target.word))
                self.at += 1
            else:
                break
        if not command.words and not command.redirections and command.body is None:
            raise ShellSyntax(f"syntax error near unexpected token {self.op() or 'newline'!r}")
        return command


def _plain(word: Word) -> str:
    """The text of a word without quotes or expansions; empty where it has any."""
    return "".join(p.text for p in word) if all(p.kind == "text" and not p.quoted for p in word) else ""


# -- running


def run_source(session: Session, source: str, io: Io) -> int:
    """Run shell source; returns the exit code. Raises ShellExit for `exit`, ShellSyntax for what is not understood."""
    return _run_items(session, _Parser(_Lexer(source).tokens()).items(), io)


def _run_items(session: Session, items: list[Item], io: Io) -> int:
    for item in items:
        if (item.joint == "&&" and session.status != 0) or (item.joint == "||" and session.status == 0):
            continue
        session.check()
        if item.background:
            session.status = _start_job(session, item)
        else:
            status = _run_pipeline(session, item.commands, io)
            session.status = int(status == 0) if item.negated else status
    return session.status


def _start_job(session: Session, item: Item) -> int:
    words = _expand(session, item.commands[0]) if len(item.commands) == 1 else []
    if len(words) != 2 or words[0] != "sleep":
        raise ShellSyntax("only 'sleep N &' can be put in the background")
    return session.start_sleep(words[1])


def _run_pipeline(session: Session, commands: list[Command], io: Io) -> int:
    if len(commands) == 1:
        return _run_command(session, commands[0], io)
    data, status = io.stdin, 0
    for i, command in enumerate(commands):
        # Each side of a pipe is a subshell: it sees the variables and changes only copies of them.
        pipe = bytearray()
        out: Sink = io.out if i == len(commands) - 1 else pipe.extend
        status = _subshell(session, partial(_run_command, command=command, io=Io(data, out, io.err)))
        data = bytes(pipe)
    return status


def _subshell(session: Session, run: Callable[[Session], int]) -> int:
    try:
        return run(session.subshell())
    except ShellExit as exit_:
        return exit_.code


def _run_command(session: Session, command: Command, io: Io) -> int:
    try:
        io = _redirect(session, command, io)
    except OSError as error:
        io.err(f"bash: {error.filename}: {error.strerror}\n".encode())
        return 1
    if command.body is not None:
        body = command.body
        if command.subshell:
            return _subshell(session, partial(_run_items, items=body, io=io))
        return _run_items(session, body, io)
    words, assignments = list(command.words), []
    while words and (match := re.match(r"([A-Za-z_]\w*)=", _head(words[0]))):
        assignments.append((match[1], _value(session, words.pop(0), len(match[0]))))
    argv = _expand(session, replace(command, words=words))
    if not argv:
        session.variables.update(assignments)
        return 0
    with session.extra_environment(assignments):
        return session.execute(argv, io)


def _head(word: Word) -> str:
    """The leading unquoted literal text of a word."""
    text = ""
    for part in word:
        if part.kind != "text" or part.quoted:
            break
        text += part.text
    return text


def _value(session: Session, word: Word, skip: int) -> str:
    """What is assigned: the word without its `name=`, expanded but neither split nor globbed."""
    return "".join(_text(session, part) for part in word[skip:])


def _redirect(session: Session, command: Command, io: Io) -> Io:
    stdin, out, err = io.stdin, io.out, io.err
    for op, word in command.redirections:
        path = "".join(_text(session, part) for part in word)
        if op == "2>&1":
            err = out
        elif op in ("1>&2", ">&2"):
            out = err
        elif op == "<":
            stdin = session.files.read(session.path(path))
        else:
            sink = session.open_sink(path, append=op.endswith(">>"))
            if op == "&>":
                out = err = sink
            elif op.startswith("2"):
                err = sink
            else:
                out = sink
    return Io(stdin, out, err)


def _expand(session: Session, command: Command) -> list[str]:
    """The argument vector: expansion, field splitting of what was unquoted, file names for * and ?."""
    argv: list[str] = []
    for word in command.words:
        fields: list[str] = []
        joined = False  # whether the next piece continues the last field
        pattern = False
        for part in word:
            text = _text(session, part)
            if part.kind == "text" or part.quoted:
                pattern |= part.kind == "text" and not part.quoted and text in ("*", "?")
                pieces = [text]
            else:
                pieces = text.split()
                joined = joined and not text[:1].isspace()
            for i, piece in enumerate(pieces):
                if joined and i == 0 and fields:
                    fields[-1] += piece
                else:
                    fields.append(piece)
            if pieces:
                joined = part.kind == "text" or part.quoted or not text[-1:].isspace()
        argv += session.glob(fields) if pattern else fields
    return argv


def _text(session: Session, part: Part) -> str:
    if part.kind == "text":
        return part.text
    if part.kind == "variable":
        value = session.lookup(part.text)
        if value == "" and part.default is not None:
            return "".join(_text(session, inner) for inner in _Lexer(part.default).word())
        return value
    if part.kind == "arithmetic":
        return str(_arithmetic(session, part.text))
    captured = bytearray()
    io = Io(b"", captured.extend, session.stderr)
    session.status = _subshell(session, partial(run_source, source=part.text, io=io))
    return captured.decode(errors="replace").rstrip("\n")


def _arithmetic(session: Session, source: str) -> int:
    """Integers, variables, + - * / % and parentheses."""
    filled = _NAME.sub(lambda m: session.lookup(m.group()) or "0", source.replace("$", ""))
    if not re.fullmatch(r"[\d\s+\-*/%()]*", filled) or "**" in filled:
        raise ShellSyntax(f"$(({source})) is not supported")
    try:
        return int(eval(filled.replace("/", "//") or "0", {"__builtins__": {}}))  # digits and operators only, see above
    except (SyntaxError, ZeroDivisionError) as error:
        raise ShellSyntax(f"$(({source})): {error}") from None


def matching(names: list[str], pattern: str) -> list[str]:
    """The names a pattern of * and ? stands for, sorted; hidden ones only where the pattern begins with a dot."""
    hits = fnmatch.filter(names, pattern)
    return sorted(name for name in hits if pattern.startswith(".") or not name.startswith("."))
