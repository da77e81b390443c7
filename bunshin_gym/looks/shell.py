"""What a shell command looks at, from its syntax tree: every command in it, wherever it stands."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from bunshin_gym.frozen import NOTHING_GIVEN, Given
from bunshin_gym.looks.commands import inline_code, look_of_command, reads_code, wrapped
from bunshin_gym.looks.look import NOTHING, Look
from bunshin_gym.looks.python import look_of_code
from bunshin_gym.looks.taken import VARIABLES, loses

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

__all__ = ["look_of_argv", "look_of_shell"]

_VARIABLES = {
    **dict.fromkeys(("RANDOM", "SRANDOM"), "randomness"),
    **dict.fromkeys(("EPOCHSECONDS", "EPOCHREALTIME", "SECONDS"), "clock"),
    **dict.fromkeys(("BASHPID", "PPID", "$", "!"), "process ids"),
}
_UNKNOWN = Look("a command that is not known before it runs", leaves_running=True)
_DEPTH = 8  # of code in code
_ESCAPED = re.compile(r'\\(?:([\\"$`])|\n)')  # what a backslash does between double quotes


@cache
def _parser() -> Parser:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def look_of_shell(text: str, depth: int = 0, given: Given = NOTHING_GIVEN) -> Look:
    """What a piece of shell looks at, beside what is `given`."""
    if depth > _DEPTH:
        return _UNKNOWN
    look = NOTHING
    stack = [_parser().parse(text.encode("utf-8", "surrogateescape")).root_node]
    while stack:
        node = stack.pop()
        look |= _look_of_node(node, depth, given)
        stack += node.children
    return look


def look_of_argv(name: str | None, args: list[str | None], depth: int = 0, given: Given = NOTHING_GIVEN) -> Look:
    """What a command with these arguments looks at, beside what is `given`, and the commands that it runs."""
    if name is None or depth > _DEPTH:
        return _UNKNOWN
    name = name.rpartition("/")[2]
    look = look_of_command(name, args, given)
    if loses(name, args):
        given = NOTHING_GIVEN
    code = inline_code(name, args)
    if code is not None:
        language, text = code
        if text is None:
            return _UNKNOWN
        look |= look_of_shell(text, depth + 1, given) if language == "shell" else look_of_code(text, given=given)
    for inner, rest in wrapped(name, args):
        look |= look_of_argv(inner, list(rest), depth + 1, given)
    return look


def _look_of_node(node: Node, depth: int, given: Given) -> Look:
    kind = node.type
    if kind == "command":
        return look_of_argv(*_words(node), depth, given)
    if kind in ("variable_name", "special_variable_name"):
        text = _text(node)
        parent = node.parent
        assigned = (
            parent is not None and parent.type == "variable_assignment" and parent.child_by_field_name("name") == node
        )
        look = _VARIABLES.get(text, "")
        return NOTHING if assigned or (look in given and text in VARIABLES) else Look(look)
    if kind == "&":
        return Look(leaves_running=True)
    if kind == "test_operator":
        text = _text(node)
        return Look(strict={"-nt": "times", "-ot": "times", "-N": "times", "-ef": "inodes"}.get(text, ""))
    if kind == "redirected_statement":
        return _fed(node, depth, given)
    if kind == "file_redirect":
        target = node.child_by_field_name("destination")
        return look_of_command("", [_value(target)], given) if target is not None else NOTHING
    return NOTHING


def _words(node: Node) -> tuple[str | None, list[str | None]]:
    name: str | None = ""
    args: list[str | None] = []
    for child in node.children:
        if child.type == "command_name":
            name = _value(child.children[0]) if child.children else _text(child)
        elif child.type not in ("variable_assignment", "file_redirect", "herestring_redirect", "heredoc_redirect"):
            args.append(_value(child))
    return name, args


def _value(node: Node) -> str | None:
    """The text of a word; None where it is not known before the shell runs."""
    kind = node.type
    if kind in ("word", "number"):
        return _text(node).replace("\\", "")
    if kind == "raw_string":
        return _text(node)[1:-1]
    if kind == "ansi_c_string":
        return _text(node)[2:-1]
    if kind == "string":
        # Its children leave out line ends, so it is read as bash reads it.
        plain = all(child.type in ('"', "string_content") for child in node.children)
        return _ESCAPED.sub(r"\1", _text(node)[1:-1]) if plain else None
    if kind in ("concatenation", "command_name"):
        parts = [_value(child) for child in node.children]
        known = [part for part in parts if part is not None]
        return "".join(known) if len(known) == len(parts) else None
    return None


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


def _fed(node: Node, depth: int, given: Given) -> Look:
    """Code that comes in by a here-document, to a shell or an interpreter."""
    body = node.child_by_field_name("body")
    look = NOTHING
    for redirect in node.children:
        if redirect.type != "heredoc_redirect":
            continue
        text = next((_text(child) for child in redirect.children if child.type == "heredoc_body"), "")
        readers = [child for child in redirect.children if child.type in ("pipeline", "command", "list")]
        for reader in [*readers, *([body] if body is not None else [])]:
            for command in _commands(reader):
                name, args = _words(command)
                kind = reads_code((name or "").rpartition("/")[2], args)
                lost = loses(name or "", args) or any(loses(word or "", []) for word in args)
                kept = NOTHING_GIVEN if lost else given
                if kind == "python":
                    look |= look_of_code(text, given=kept)
                elif kind == "shell":
                    look |= look_of_shell(text, depth + 1, kept)
    return look


def _commands(node: Node) -> list[Node]:
    found, stack = [], [node]
    while stack:
        at = stack.pop()
        if at.type == "command":
            found.append(at)
        stack += at.children
    return found
