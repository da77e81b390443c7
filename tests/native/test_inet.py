"""What takes more than one workspace and its forks to see: seals that are given up, servers outside."""

from __future__ import annotations

import socket

import pytest

from bunshin_gym import ForkError, ToolCall, Workspace, WorkspaceSpec
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


# -- the host's network: a server outside the workspace

CLIENT = """
import socket, select
def client(family, kind=socket.SOCK_STREAM):
    s = socket.socket(family, kind)
    s.settimeout(10)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1) if kind == socket.SOCK_STREAM else None
    return s
tcp = client(socket.AF_INET)
tcp.connect(("127.0.0.1", {tcp}))
tcp.sendall(b"hello")
udp = client(socket.AF_INET, socket.SOCK_DGRAM)
udp.connect(("127.0.0.1", {udp}))
udp.send(b"knock")
listener = client(socket.AF_INET)
listener.bind(("127.0.0.1", 0))
listener.listen(5)
port = listener.getsockname()[1]
bound = client(socket.AF_INET, socket.SOCK_DGRAM)
bound.bind(("127.0.0.1", 0))
watch = select.epoll()
watch.register(tcp, select.EPOLLIN)
port
"""
TALK = """
def talk(text):
    tcp.sendall(text)
    answer = b""
    while len(answer) < len(text):
        answer += tcp.recv(len(text) - len(answer))
    return answer
def heard(s):
    try:
        return s.recv(100)
    except OSError as error:
        return error.strerror
"""


def python(workspace: Workspace, code: str) -> str:
    result = workspace.call(ToolCall("python", {"code": code}), 20)
    assert result.exit_code == 0, result.output
    return result.output.strip()


class Outside:
    """An echo server and a UDP socket on the host's loopback, outside every workspace."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        for one in (self.listener, self.udp):
            one.settimeout(10)

    def __enter__(self) -> Outside:
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.close()
        self.udp.close()

    @property
    def ports(self) -> dict[str, int]:
        return {"tcp": self.listener.getsockname()[1], "udp": self.udp.getsockname()[1]}


@pytest.mark.parametrize("generations", [1, 3])
def test_connections_to_the_outside_stay_with_the_source(generations: int) -> None:
    with Outside() as outside, Workspace(WorkspaceSpec(network="host")) as source:
        port = int(python(source, CLIENT.format(**outside.ports) + "\n" + TALK + "\nport").splitlines()[-1])
        served, _ = outside.listener.accept()
        with served:
            served.settimeout(10)
            assert served.recv(100) == b"hello"
            knock, client = outside.udp.recvfrom(100)
            assert knock == b"knock"
            served.sendall(b"not read yet")
            for _ in range(generations):
                child = play.one_fork(source)
                notes = "\n".join(child.report.notes)
                with child:
                    ports = outside.ports
                    assert f"to 127.0.0.1:{ports['tcp']} is reset" in notes
                    assert f"a UDP socket to 127.0.0.1:{ports['udp']} is cut off" in notes
                    assert f"a listener on 127.0.0.1:{port} listens on port " in notes
                    # Reset, told once, and then as the kernel would.
                    assert python(child, "watch.poll(5)[0][1] & (select.EPOLLERR | select.EPOLLHUP) > 0") == "True"
                    assert python(child, "heard(tcp), heard(tcp)") == "('Connection reset by peer', b'')"
                    assert python(child, "heard(udp)") == "'Connection refused'"
                    own = int(python(child, "listener.getsockname()[1]"))
                    assert own != port and f"listens on port {own}" in notes
                    with socket.create_connection(("127.0.0.1", own), 5) as visitor:
                        assert python(child, "a, _ = listener.accept(); a.sendall(b'child')\n1") == "1"
                        assert visitor.recv(10) == b"child"
                    # It can connect anew.
                    code = f"fresh = socket.create_connection(('127.0.0.1', {ports['tcp']}), 5); fresh.send(b'new')"
                    assert python(child, code) in ("3", "")
                    fresh, _ = outside.listener.accept()
                    assert fresh.recv(10) == b"new"
                    fresh.close()
                    grandchild = play.one_fork(child)
                    with grandchild:
                        assert python(grandchild, "heard(fresh)") == "'Connection reset by peer'"
            assert not [note for note in source.report.notes if "reset" in note]
            assert python(source, "heard(tcp)") == "b'not read yet'"
            python(source, "udp.send(b'again')")
            assert outside.udp.recvfrom(100) == (b"again", client)
            outside.udp.sendto(b"answer", client)
            assert python(source, "heard(udp)") == "b'answer'"
            with socket.create_connection(("127.0.0.1", port), 5) as visitor:
                assert python(source, "a, _ = listener.accept(); a.sendall(b'source')\n1") == "1"
                assert visitor.recv(10) == b"source"
            python(source, "tcp.sendall(b'still here')")
            assert served.recv(100) == b"still here"
        assert python(source, "heard(tcp)") == "b''"


def test_connections_to_the_outside_survive_a_seal_that_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with Outside() as outside, Workspace(WorkspaceSpec(network="host")) as source:
        python(source, CLIENT.format(**outside.ports) + "\n" + TALK)
        served, _ = outside.listener.accept()
        with served:
            served.settimeout(10)
            assert served.recv(100) == b"hello"
            for fault in ("seal:3", "seal:5", "rebuild:18", "rebuild:21"):
                monkeypatch.setenv("BUNSHIN_FAULT", fault)
                with pytest.raises(ForkError):
                    source.snapshot()
                monkeypatch.delenv("BUNSHIN_FAULT")
                python(source, "tcp.sendall(b'ping')")
                assert served.recv(100) == b"ping"
                served.sendall(b"pong")
                assert python(source, "heard(tcp)") == "b'pong'"
            # A roll-back is a fork of a state that is past: what was outside is gone.
            with source.snapshot() as snapshot:
                source.restore(snapshot)
            assert python(source, "heard(tcp)") == "'Connection reset by peer'"
            assert served.recv(100) == b""


def test_who_waits_for_the_outside_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread in recv() in the child gets the reset; in the source it goes on waiting."""
    with Outside() as outside, Workspace(WorkspaceSpec(network="host")) as source:
        code = (
            "\nimport threading\ntcp.settimeout(None)\nwords = []\n"
            "threading.Thread(target=lambda: words.append(heard(tcp)), daemon=True).start()"
        )
        python(source, CLIENT.format(**outside.ports) + "\n" + TALK + code)
        served, _ = outside.listener.accept()
        with served:
            child = play.one_fork(source)
            with child:
                look = "import time\nfor _ in range(500):\n    words or time.sleep(0.01)\nwords"
                assert python(child, look) == "['Connection reset by peer']"
                assert python(source, "words") == "[]"
                served.sendall(b"word")
                assert python(source, look) == "[b'word']"
