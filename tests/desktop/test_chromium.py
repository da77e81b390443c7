"""A live browser: forked in the middle of a form, with state in JavaScript, a timer that runs, and a websocket."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import needs
from bunshin_gym.desktop import Desktop
from bunshin_gym.tools import ToolCall
from bunshin_gym.workspace import Snapshot

from .conftest import difference

BROWSER = (
    "chromium --no-sandbox --no-first-run --disable-gpu --disable-sync --disable-component-update "
    "--password-store=basic --disable-background-networking --user-data-dir=/work/profile "
    "--remote-debugging-port=9222 --start-maximized --app=http://127.0.0.1:8000/"
)

Fork = Callable[[Snapshot, int], list[Desktop]]


def ask(desktop: Desktop, expression: str) -> Any:
    """The value of a JavaScript expression in the page."""
    argv = ["python3", "/work/browser.py", "ask", expression]
    result = desktop.workspace.call(ToolCall("exec", {"argv": argv}), timeout=40)
    assert result.ok, result.output
    return json.loads(result.output)


def ticks_on(desktop: Desktop) -> bool:
    """Whether the page's timer runs."""
    before = ask(desktop, "count")
    ends = time.monotonic() + 10
    while time.monotonic() < ends:
        if ask(desktop, "count") > before:
            return True
    return False


@pytest.fixture
def page(desktop: Desktop) -> Desktop:
    needs.require("chromium")
    desktop.workspace.write_file("/work/browser.py", Path(__file__).with_name("browser.py").read_bytes())
    desktop.workspace.run("setsid python3 /work/browser.py serve >/work/server.log 2>&1 </dev/null &")
    desktop.launch(BROWSER, "stateful page", limit=60)
    desktop.use("type", text="half fil")
    assert ask(desktop, "ask('first')") == "1: first"
    return desktop


@pytest.mark.slow
@pytest.mark.needs("chromium")
def test_a_page_with_state_a_timer_a_websocket_and_half_a_form(page: Desktop, forked: Fork) -> None:
    made = ask(page, "state.made")
    with page.workspace.snapshot() as snapshot:
        at = ask(page, "count")
        children = forked(snapshot, 2)
    for number, child in enumerate((page, *children)):
        assert ask(child, "[state.made, state.list, state.said, document.querySelector('input').value]") == [
            made,
            [1, 2, 3],
            ["1: first"],
            "half fil",
        ]
        assert ask(child, "count") >= min(at, 1) and ticks_on(child)
        child.use("type", text=f"led in {number}")
        assert ask(child, "document.querySelector('input').value") == f"half filled in {number}"
        assert ask(child, f"state.list.push({number}), state.list.length") == 4
        # Each talks to a server of its own over the connection it had: the count goes on in each.
        assert ask(child, f"ask('from {number}')") == f"2: from {number}"
        assert ask(child, f"ask('again {number}')") == f"3: again {number}"
    values = [ask(child, "[document.querySelector('input').value, state.list[3]]") for child in (page, *children)]
    assert values == [[f"half filled in {number}", number] for number in range(3)]
    pictures = [child.screenshot() for child in (page, *children)]
    assert all(difference(pictures[i], pictures[j]) for i in range(3) for j in range(i))
    with children[0].workspace.snapshot() as later:
        (grandchild,) = forked(later, 1)
    assert ask(grandchild, "ask('grandchild')") == "4: grandchild"
    grandchild.use("keypress", keys=["CTRL", "A"])
    grandchild.use("type", text="all new")
    assert ask(grandchild, "document.querySelector('input').value") == "all new"
    assert ask(children[0], "document.querySelector('input').value") == "half filled in 1"


@pytest.mark.slow
@pytest.mark.needs("chromium")
def test_rollback_of_a_browser(page: Desktop) -> None:
    """A timer that draws is stopped first, so that the pictures can be compared to the pixel."""
    ask(page, "for (let i = 0; i < 9999; i++) clearInterval(i)")
    page.use("keypress", keys=["TAB"])  # away from the field, whose cursor blinks
    page.settle(0.3, 10.0)
    before = page.screenshot()
    with page.workspace.snapshot() as snapshot:
        page.use("keypress", keys=["SHIFT", "TAB"])
        page.use("type", text="led, and gone")
        ask(page, "document.body.style.background = 'plum'")
        page.settle(0.3, 10.0)
        assert difference(page.screenshot(), before)
        page.workspace.restore(snapshot)
        assert not difference(page.screenshot(), before)
        assert ask(page, "document.querySelector('input').value") == "half fil"
        assert ask(page, "ask('after')") == "2: after"
