"""Stands in for a language server where none is installed: keeps the syntax trees of a project and of the library."""

import ast
import pathlib
import signal
import sys

project, ready = map(pathlib.Path, sys.argv[1:])
trees = {}
for path in [*sorted(project.rglob("*.py")), *sorted(pathlib.Path(ast.__file__).parent.glob("*.py"))[:40]]:
    trees[path] = ast.parse(path.read_bytes())
ready.touch()
signal.pause()
