"""What takes more than one workspace and its forks to see: seals that are given up, servers outside."""

from __future__ import annotations

import pytest

from bunshin_gym import ForkError, Workspace, WorkspaceSpec
from native import play

pytestmark = [pytest.mark.engine("native"), pytest.mark.needs("gcc")]

VICTIMS = {victim.name: victim for victim in play.all_victims()}


@pytest.mark.parametrize("fault", ["seal:3", "seal:5", "rebuild:18", "rebuild:21"])
def test_connections_not_accepted_are_put_back(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Workspace(WorkspaceSpec()) as source:
        place = play.start(source, VICTIMS["tcp_pending_and_udp_looked_at"])
        monkeypatch.setenv("BUNSHIN_FAULT", fault)
        for _ in range(3):
            with pytest.raises(ForkError):
                source.snapshot()
        monkeypatch.delenv("BUNSHIN_FAULT")
        child = play.one_fork(source)
        with child:
            assert not play.verdicts([("source", source), ("child", child)], place, 0.0)


def test_connections_put_back_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """As above, without a seal that goes well: by the very sockets that were there before."""
    with Workspace(WorkspaceSpec()) as source:
        place = play.start(source, VICTIMS["tcp_pending_and_udp_looked_at"])
        monkeypatch.setenv("BUNSHIN_FAULT", "seal:4")
        with pytest.raises(ForkError):
            source.snapshot()
        assert not play.verdicts([("source", source)], place, 0.0)
