"""The dummy engine's python tool: a small, data-only subset of Python, run in this process.

Statements, loops and comprehensions over plain data with the builtins listed below. No def, class, lambda, import,
with, or names and attributes that begin with an underscore: so a namespace can be copied for a fork, and the code
cannot get at the process it runs in. A value that cannot be copied (a generator) makes a snapshot refuse, by name, as
an unsupported resource of a real process would.
"""

from __future__ import annotations

import ast
import copy
import io
import traceback
from collections.abc import Callable
from typing import Any

__all__ = ["Interpreter", "Uncopyable"]

_BUILTINS: dict[str, Any] = {
    f.__name__: f
    for f in (
        *(
            abs,
            all,
            any,
            bin,
            bool,
            bytes,
            chr,
            dict,
            divmod,
            enumerate,
            filter,
            float,
            frozenset,
            hex,
            int,
            isinstance,
        ),
        *(iter, len, list, map, max, min, next, oct, ord, pow, print, range, repr, reversed, round, set, slice, sorted),
        *(str, sum, tuple, zip, Exception, ArithmeticError, AssertionError, IndexError, KeyError, LookupError),
        *(RuntimeError, StopIteration, TypeError, ValueError, ZeroDivisionError),
    )
}
_REFUSED = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.Import, ast.ImportFrom, ast.With),
    *(ast.AsyncWith, ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal),
)


class Uncopyable(Exception):
    """A variable cannot go along into a fork."""

    def __init__(self, name: str, value: object) -> None:
        super().__init__(f"variable {name!r}, a {type(value).__name__}")


class _Ticks(ast.NodeTransformer):
    """Lets every loop ask, each time round, whether its time is up."""

    def _tick(self, node: Any) -> ast.AST:
        self.generic_visit(node)
        call = ast.parse("_tick()").body[0]
        node.body.insert(0, ast.copy_location(call, node))
        ticking: ast.AST = ast.fix_missing_locations(node)
        return ticking

    visit_While = _tick
    visit_For = _tick


class Interpreter:
    """A persistent namespace. `run` never raises for what the code does wrong, but lets what `check` raises through."""

    def __init__(self, variables: dict[str, Any] | None = None) -> None:
        self.variables = variables if variables is not None else {}

    def fork(self) -> Interpreter:
        """A copy with equal values and nothing shared. Raises Uncopyable."""
        memo: dict[int, Any] = {}
        copied: dict[str, Any] = {}
        for name, value in self.variables.items():
            try:
                copied[name] = copy.deepcopy(value, memo)
            except Exception:
                raise Uncopyable(name, value) from None
        return Interpreter(copied)

    def run(self, code: str, check: Callable[[], None]) -> tuple[str, int]:
        """Run code; returns its output and an exit code: 0, or 1 after an exception."""
        output = io.StringIO()
        stop: list[BaseException] = []

        def tick() -> None:
            try:
                check()
            except BaseException as reason:
                stop.append(reason)
                raise

        scope = self.variables
        scope["__builtins__"] = _BUILTINS | {"_tick": tick, "print": lambda *a, **k: print(*a, **k | {"file": output})}
        try:
            tree = ast.parse(code)
            _refuse(tree)
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(_Ticks().visit(tree), "<python>", "exec"), scope)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), "<python>", "eval"), scope)
                if value is not None:
                    output.write(repr(value) + "\n")
            return output.getvalue(), 0
        except Exception as error:
            if stop:
                raise stop[0] from None
            # The first frame is this function's. A syntax error has none of the code's own.
            inner = error.__traceback__.tb_next if error.__traceback__ else None
            inner = None if isinstance(error, SyntaxError) else inner
            return output.getvalue() + "".join(traceback.format_exception(type(error), error, inner)), 1
        finally:
            del scope["__builtins__"]


def _refuse(tree: ast.AST) -> None:
    for node in ast.walk(tree):
        if isinstance(node, _REFUSED):
            raise SyntaxError(f"the dummy engine's python has no {type(node).__name__}")
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        if (name.startswith("_") and name != "_") or name in ("format", "format_map"):
            # str.format reaches attributes by name, past this check.
            raise SyntaxError(f"the dummy engine's python has no {name!r}")
