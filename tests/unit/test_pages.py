"""The code blocks of documentation pages, run from top to bottom as a reader would."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGES = Path(__file__).resolve().parents[2] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.needs("engine native")
@pytest.mark.parametrize("page", ["vector.md"])
def test_the_code_on_a_page_runs(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    text = (PAGES / page).read_text()
    names: dict[str, object] = {"__name__": page}
    blocks = list(BLOCK.finditer(text))
    assert blocks, f"{page} has no code"
    for block in blocks:
        above = text.count("\n", 0, block.start(1))
        exec(compile("\n" * above + block.group(1), str(PAGES / page), "exec"), names)
