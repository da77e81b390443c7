"""The page of a report in a real browser: it shows what was done, lets one search and go about, and fetches nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from report.devtools import Browser
from report.trees import HOSTILE, report_of

from bunshin_gym.errors import TaskError
from bunshin_gym.report import Report, load, write
from bunshin_gym.scripted import play_taskset
from bunshin_gym.task import Taskset

CHOSEN = ".row[aria-selected=true] code"
CALL, RESULT = "[data-part=call]", "[data-part=result]"
SEARCH = "input[type=search]"


@pytest.fixture
def browser() -> Iterator[Browser]:
    with Browser() as made:
        yield made
        assert made.complaints == []
        assert all(address.startswith(("file:", "data:")) for address in made.fetched)


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Browser:
    """One with a task of twenty calls, some of them hostile, and one of five thousand."""
    path = tmp_path / "a report.html"
    write(report_of(20, 5000), path)
    browser.open(path)
    return browser


def other_task(page: Browser, index: int) -> None:
    page.ask(
        f"(s => {{ s.value = {index}; s.dispatchEvent(new Event('change')) }})(document.querySelector('#tree select'))"
    )


def search(page: Browser, words: str, found: str) -> None:
    """Type into the search box, and wait until it says what it found."""
    page.ask(f"(s => {{ s.focus(); s.select() }})(document.querySelector('{SEARCH}'))")
    page.type(words)
    told(page, found)


def told(page: Browser, found: str) -> None:
    page.until(f"document.querySelector('[role=status].note').textContent === '{found}'")


@pytest.mark.needs("chromium")
def test_a_small_tree(page: Browser) -> None:
    assert [address.rpartition("/")[2] for address in page.fetched] == ["a%20report.html"]
    sections = page.ask("[...document.querySelectorAll('section')].map(one => one.id)")
    assert sections == ["phases", "memory", "tree", "timeline"]
    assert (page.count(".row"), page.count("#memory path"), page.count("#phases .bar")) == (21, 3, 2)
    assert "−63 %" in page.text("#memory")
    # What a call says is text, and what would not show is spelled out.
    row = page.ask("[...document.querySelectorAll('.row')].find(one => one.textContent.includes('gnp')).id")
    page.click_on(f"#{row} code")
    hostile = page.text(CALL)
    assert hostile.startswith("echo '</script><script>document.title") and "<img src=x onerror=alert(1)>" in hostile
    assert "\\x07 \\u{202e}gnp.exe \\u{d800}" in hostile and "\x1b" not in hostile
    assert page.ask("document.title") == "a report" and page.count("img") == 0
    # By keys: to the next, fold and unfold.
    page.click_on("#row-0 code")
    page.press("ArrowDown")
    assert page.text(CHOSEN) == page.text("#row-1 code")
    assert page.ask("document.activeElement.getAttribute('aria-activedescendant')") == "row-1"
    page.press("Home")
    page.press("ArrowLeft")
    assert page.count(".row") == 1
    assert page.ask("document.querySelector('#row-0').getAttribute('aria-expanded')") == "false"
    page.press("ArrowRight")
    assert page.count(".row") == 21


@pytest.mark.needs("chromium")
def test_a_large_tree(page: Browser) -> None:
    other_task(page, 1)
    assert "5,000 different calls" in page.text("#tree")
    assert 21 < page.count(".row") < 80  # only what is in sight is in the document
    page.press("/")
    search(page, "part_4321 ", "1 of 1")
    assert "part_4321 " in page.text(CHOSEN) and "part_4321 " in page.text(CALL)
    assert "needle-4321" in page.text(RESULT)
    left, top, width, height = page.box(".row[aria-selected=true]")
    assert page.ask(f"document.elementFromPoint({left + width / 2}, {top + height / 2}).closest('.row').id") == (
        page.ask("document.querySelector('.row[aria-selected=true]').id")
    )
    search(page, "needle-77", "no match")
    page.click_on("#tree input[type=checkbox]")
    told(page, "1 of 11")
    page.click_on(SEARCH)
    page.press("Enter")
    told(page, "2 of 11")
    page.press("Enter", shift=True)
    told(page, "1 of 11")
    search(page, "part_9 ", "1 of 1")
    assert "996000 characters left out" in page.text(RESULT)


@pytest.mark.needs("chromium")
def test_map_and_timeline_zoom_and_lead_to_calls(page: Browser) -> None:
    other_task(page, 1)
    page.ask("[...document.querySelectorAll('#tree button')].find(one => one.textContent === 'map').click()")
    assert page.colourful("#tree canvas") > 0.3
    picture = "document.querySelector('#tree canvas').toDataURL()"
    before = page.ask(picture)
    page.ask("document.querySelector('#tree canvas').focus()")
    page.press("+")
    page.until(f"{picture} !== {json.dumps(before)}")
    page.press("0")
    page.until(f"{picture} === {json.dumps(before)}")
    left, top, width, _ = page.box("#tree canvas")
    page.click(left + width / 2, top + 30)
    assert page.text(CALL)
    page.ask("document.querySelector('#timeline').scrollIntoView()")
    page.ask("new Promise(requestAnimationFrame)")
    assert page.colourful("#timeline canvas") > 0.2
    left, top, width, _ = page.box("#timeline canvas")
    page.click(left + 190 + (width - 190) * 0.6, top + 8)  # the first rollout's call, of the other task
    page.until("document.querySelector('#tree select').value === '0'")
    assert page.text(CALL)


@pytest.mark.needs("chromium")
def test_the_page_of_a_run(browser: Browser, tmp_path: Path) -> None:
    (report,) = play_taskset(Taskset.load("fix_failing_test"), rollouts=6, engine="dummy", jobs=2, watch=True)
    assert report.run is not None
    page = tmp_path / "run.html"
    write(Report("a run", runs=[report.run]), page)
    browser.open(page)
    assert f"of {report.stats.calls} calls answered without running" in browser.text(".tiles")
    assert browser.count(".row") == len(list(report.tree))
    assert "run: running calls" in browser.text("#phases") and "verify: verifiers" in browser.text("#phases")
    browser.click_on("#row-1 code")
    assert "cd /work/pagerange" in browser.text(CALL)
    assert "6 rollouts came here" in browser.text(".detail")


def test_what_is_written_can_be_loaded(tmp_path: Path) -> None:
    report = report_of(30)
    for name in ("r.html", "r.json"):
        write(report, tmp_path / name)
        plain = load(tmp_path / name)
        assert plain["title"] == "a report" and len(plain["runs"][0]["tasks"][0]["branches"]) == 31
    html = (tmp_path / "r.html").read_text().replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    assert html.count("</script>") == 2 and "http" not in html
    assert any(one.get("call") == HOSTILE for one in load(tmp_path / "r.html")["runs"][0]["tasks"][0]["branches"])


def test_what_is_no_report_is_refused(tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    for text in ("", "[]", "{}", '{"format": "bunshin report 0"}', "[" * 100_000):
        bad.write_text(text)
        with pytest.raises(TaskError, match=r"cannot read .*bad\.json: it is n"):
            load(bad)
    bad.write_bytes(b"\xff\xfe")
    with pytest.raises(TaskError, match="neither a report nor JSON"):
        load(bad)
    with pytest.raises(TaskError, match="No such file"):
        load(tmp_path / "nowhere")
    with pytest.raises(TaskError, match="cannot write"):
        write(report_of(1), tmp_path / "nowhere" / "r.html")


def test_a_page_holds_no_more_than_it_can(tmp_path: Path) -> None:
    """Results that would make it too large are cut, each alike; the tree stays whole."""
    report = report_of(4000)
    for branch in report.runs[0].tasks[0].tree:
        branch.output = "y" * 4000
    write(report, tmp_path / "r.html")
    assert (tmp_path / "r.html").stat().st_size < 20_000_000
    branches = load(tmp_path / "r.html")["runs"][0]["tasks"][0]["branches"]
    assert len(branches) == 4001 and all("left out" in one["output"] for one in branches[1:])
