"""Executes one notebook from top to bottom and fails on the first error. Writes nothing.

usage: run_notebook.py NOTEBOOK
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient


def main() -> None:
    path = Path(sys.argv[1])
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(path.parent)}})
    client.execute()
    print(f"{path}: {len(notebook.cells)} cells ran")


if __name__ == "__main__":
    main()
