"""Shared by all tests: needs that skip in a sentence, and the check that nothing is left behind."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

import needs
import residue

_passed = pytest.StashKey[bool]()
_at_start = pytest.StashKey[residue.Look]()


def pytest_sessionstart(session: pytest.Session) -> None:
    # An engine's keeper starts with the first workspace and stays as long as this process; it is no residue.
    needs.missing("engine native")
    session.config.stash[_at_start] = residue.look()


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("engine"):
        needs.require(f"engine {mark.args[0]}")
    for mark in item.iter_markers("needs"):
        for need in mark.args:
            needs.require(need)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report: pytest.TestReport = yield  # type: ignore[misc, assignment]
    if report.when == "call":
        item.stash[_passed] = report.passed
    return report  # type: ignore[return-value]


@pytest.fixture(autouse=True)
def no_residue(request: pytest.FixtureRequest) -> Iterator[None]:
    """Law 5: a test leaves no process, mount, directory, shared memory, cgroup, descriptor or thread of ours.

    Workspaces of fixtures with a wider scope exist before and after, so they do not count here; the end of
    the session looks for those. A failed test keeps what it has, as evidence.
    """
    before = residue.look()
    yield
    if not request.node.stash.get(_passed, False) or request.node.get_closest_marker("keeps"):
        return
    gc.collect()
    if left := residue.since(before):
        pytest.fail("left behind:\n  " + "\n  ".join(left), pytrace=False)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    gc.collect()
    # After failures the evidence is still there by design.
    if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        left = residue.since(session.config.stash[_at_start])
        if left:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            session.config.stash[_left] = left


_left = pytest.StashKey[list[str]]()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(_left, []):
        terminalreporter.write_line(f"left behind by the session: {line}", red=True)
    failed = dict.fromkeys(r.nodeid for key in ("failed", "error") for r in terminalreporter.stats.get(key, []))
    if failed:
        terminalreporter.section("run again")
        for nodeid in failed:
            terminalreporter.write_line(f"make test PYTEST_ARGS='{nodeid}'")
