"""How tests of the executor begin rollouts on the dummy engine, and make their calls; alone, or all at once."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from bunshin_gym import ToolCall, ToolResult, Workspace, WorkspaceError, WorkspaceSpec
from bunshin_gym.executor import Executor
from bunshin_gym.flight import Flight, Flights, Landing
from bunshin_gym.policy import Site
from bunshin_gym.rollout import Rollout

SPEC = WorkspaceSpec(engine="dummy", separate_stderr=False)
Begin = Callable[[], Rollout]
Together = Callable[[Executor, list[Rollout], str], list[ToolResult | WorkspaceError]]


class Everywhere:
    """A policy that keeps a snapshot after each call that owes something. `asked`: about which sites."""

    def __init__(self) -> None:
        self.asked: list[Site] = []

    def place(self, site: Site) -> bool:
        self.asked.append(site)
        return True

    def value(self, site: Site) -> float:
        return site.replay


def prepare() -> Workspace:
    workspace = Workspace(SPEC)
    workspace.run("echo prepared > ready")
    return workspace


def run(executor: Executor, rollout: Rollout, command: str, timeout: float = 20.0) -> ToolResult:
    return executor.run(rollout, ToolCall("shell", {"command": command}), timeout)


def waiting_for_the_first(monkeypatch: pytest.MonkeyPatch, timeout: float = 0.1) -> Together:
    """Has rollouts make a call at once; that of the first ends when all the others wait for it."""

    def together(executor: Executor, rollouts: list[Rollout], command: str) -> list[ToolResult | WorkspaceError]:
        results: dict[int, ToolResult | WorkspaceError] = {}
        leads, shut, land, join = threading.Event(), Flight.shut, Flight.land, Flights.join
        came: list[Flight] = []

        def until_all_wait(flight: Flight) -> None:
            leads.set()
            with flight._changed:
                enough = lambda: came.count(flight) >= len(rollouts) - 1 or flight._over  # noqa: E731
                assert flight._changed.wait_for(enough, 60)

        def shut_late(flight: Flight) -> int:
            until_all_wait(flight)
            return shut(flight)

        def land_late(flight: Flight, landing: Landing) -> None:
            until_all_wait(flight)
            land(flight, landing)

        def join_and_tell(flights: Flights, *key: object) -> tuple[Flight, bool]:
            flight, leading = join(flights, *key)
            if not leading:
                came.append(flight)
            flight._notify()
            return flight, leading

        def ask(number: int, rollout: Rollout) -> None:
            try:
                results[number] = run(executor, rollout, command, timeout=timeout)
            except WorkspaceError as error:
                results[number] = error

        with monkeypatch.context() as patch:
            patch.setattr(Flight, "shut", shut_late)
            patch.setattr(Flight, "land", land_late)
            patch.setattr(Flights, "join", join_and_tell)
            threads = [threading.Thread(target=ask, args=pair) for pair in enumerate(rollouts)]
            threads[0].start()
            assert leads.wait(60)
            for thread in threads[1:]:
                thread.start()
            for thread in threads:
                thread.join(90)
        return [results[number] for number in range(len(rollouts))]

    return together
