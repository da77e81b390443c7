"""Servers in the middle of answering: downloads, keep-alive connections, pushed messages."""

from __future__ import annotations

import pytest
from programs.scene import SOURCES, Branch, Scene, together

pytestmark = [pytest.mark.engine("native"), pytest.mark.timeout(120)]

NGINX = """
worker_processes 2;
error_log /work/error.log;
pid /work/nginx.pid;
daemon off;
events {{ worker_connections 64; }}
http {{
    client_body_temp_path /work/body; proxy_temp_path /work/proxy; fastcgi_temp_path /work/f; uwsgi_temp_path /work/u;
    scgi_temp_path /work/s;
    access_log /work/access.log;
    keepalive_timeout 600; send_timeout 600; sendfile on;
    server {{
        listen 127.0.0.1:8080; listen [::1]:8080; listen unix:/work/web.sock;
        root /work/www;
        location /answer {{ return 200 "{answer}"; }}
        location /slow/ {{ alias /work/www/; limit_rate 4m; }}
    }}
}}
"""


@pytest.mark.needs("nginx", "curl")
@pytest.mark.parametrize("stalled", [False, True], ids=["reading", "stalled"])
def test_nginx(scene: Scene, stalled: bool) -> None:
    source = scene.source()
    source.sh(
        "mkdir -p /work/www && head -c 12000000 /dev/urandom >/work/www/big && sha256sum </work/www/big >/work/sum"
    )
    source.put("/work/nginx.conf", NGINX.format(answer="before"))
    user = "-g 'user root root;'"  # the workers then change nothing: there is no capability to
    source.put("/work/nginx", f"#!/bin/sh\nexec nginx -c /work/nginx.conf -e /work/error.log {user}\n", 0o755)
    source.start("/work/nginx")
    source.until("curl -s http://127.0.0.1:8080/answer", "before")
    source.py(f"stalled = {stalled}")
    source.py("""
import hashlib, http.client, socket, threading, time
class Unix(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX); self.sock.connect("/work/web.sock")
kept = [http.client.HTTPConnection("127.0.0.1", 8080), http.client.HTTPConnection("::1", 8080), Unix("x")]
def ask(c, path="/answer"):
    c.request("GET", path); r = c.getresponse(); return r.status, r.read().decode()
assert [ask(c) for c in kept] == [(200, "before")] * 3
slow = http.client.HTTPConnection("127.0.0.1", 8080, timeout=60)
slow.request("GET", "/slow/big"); answer = slow.getresponse()
digest, got = hashlib.sha256(), 0
def load():
    global got
    while part := answer.read(65536): digest.update(part); got += len(part)
loading = threading.Thread(target=load); loading.start()
full = http.client.HTTPConnection("127.0.0.1", 8080, timeout=60)
if stalled: full.request("GET", "/big"); unread = full.getresponse(); time.sleep(0.2)   # both buffers are full
halfway = socket.create_connection(("127.0.0.1", 8080)); halfway.sendall(b"GET /answer HTTP/1.1\\r\\nHost: ")
while got < 500000: time.sleep(0.01)
assert got < 12000000
""")
    branches = scene.fork(
        source, "nginx -v 2>&1 | sed 's/.*: //'",
        "a master and two workers: keep-alive connections (IPv4, IPv6, unix), a throttled download, half a request"
        + (", a download that is not read" if stalled else ""),
    )  # fmt: skip

    def go_on(branch: Branch) -> None:
        n = branch.number
        branch.py("""
assert [ask(c) for c in kept] == [(200, "before")] * 3
halfway.sendall(b"x\\r\\nConnection: close\\r\\n\\r\\n")
assert halfway.makefile("rb").read().endswith(b"before")
""")
        # New workers, while the old ones still have downloads to finish.
        branch.put("/work/nginx.conf", NGINX.format(answer=f"branch {n}"))
        branch.sh("kill -HUP $(cat /work/nginx.pid)")
        branch.until("curl -s --unix-socket /work/web.sock http://x/answer", f"^branch {n}$")
        branch.py("""
total = open("/work/sum").read().split()[0]
assert not stalled or hashlib.sha256(unread.read()).hexdigest() == total, "the stalled download"
loading.join(60); assert not loading.is_alive()
assert got == 12000000 and digest.hexdigest() == total, ("the slow download", got)
""")
        branch.sh(f"curl -sf http://127.0.0.1:8080/answer?own={n}")
        assert branch.sh("grep -o 'own=.' /work/access.log") == f"own={n}\n"
        branch.sh("kill -QUIT $(cat /work/nginx.pid)")
        branch.until("! pgrep -x nginx >/dev/null")

    together(branches, go_on)


@pytest.mark.needs("node")
def test_node(scene: Scene) -> None:
    source = scene.source()
    source.put("/work/server.js", (SOURCES / "server.js").read_text())
    source.start("node --max-old-space-size=256 /work/server.js")
    source.until("cat /work/node.log", "listening")
    source.py("""
import http.client, json, socket, struct, time
def ask(path):
    c = http.client.HTTPConnection("127.0.0.1", 8081, timeout=30); c.request("GET", path)
    return json.loads(c.getresponse().read())
web = socket.create_connection(("127.0.0.1", 8081)); web.settimeout(30)
web.sendall(b"GET /chat HTTP/1.1\\r\\nHost: x\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n"
            b"Sec-WebSocket-Version: 13\\r\\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\n\\r\\n")
head = b""
while not head.endswith(b"\\r\\n\\r\\n"): head += web.recv(1)
assert b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head, head
def exactly(n):
    data = b""
    while len(data) < n:
        part = web.recv(n - len(data)); assert part, "the connection has ended"; data += part
    return data
def hear():
    first, length = exactly(2); assert first == 0x81 and length < 126; return exactly(length).decode()
def say(text):
    mask = b"abcd"; data = bytes(c ^ mask[i % 4] for i, c in enumerate(text.encode()))
    web.sendall(bytes([0x81, 0x80 | len(data)]) + mask + data)
assert hear() == "tick 1" and hear() == "tick 2"
say("before"); heard = ""
while not heard.startswith("you said"): heard = hear()
assert heard == "you said before, after nothing", heard
""")
    branches = scene.fork(
        source, "echo node $(node --version)",
        "an HTTP server with a websocket, timers, a worker thread computing, a child in dialogue, a promise pending",
    )  # fmt: skip

    def go_on(branch: Branch) -> None:
        n = branch.number
        branch.py(
            f"""
say("branch {n}")
ticks = []
while True:
    heard = hear()
    if heard.startswith("tick"): ticks.append(int(heard.split()[1]))
    if len(ticks) >= 5 and said: break
    if heard.startswith("you said"): assert heard == "you said branch {n}, after before", heard; said = True
assert ticks == list(range(ticks[0], ticks[0] + len(ticks))), ticks
""".replace("ticks = []", "ticks, said = [], False")
        )
        branch.sh(f"echo branch {n} >/work/awaited")
        state = branch.py(f"""
state = ask("/state?own={n}")
while not (state["worker"]["done"] and state["awaited"]): time.sleep(0.05); state = ask("/state")
assert state["child"] == ["echo before"], state["child"]
assert state["owns"] == ["{n}"], state["owns"]
assert state["awaited"] == "branch {n}\\n", state["awaited"]
assert state["worker"] == {{"done": True, "primes": 1229 * 40}}, state["worker"]
assert ask("/child?say=branch{n}") == "echo branch{n}"
assert ask("/late") == "late"
again = ask("/exec"); assert again == "55\\n", again
""")
        assert state == ""
        branch.sh("pkill -TERM -x node || pkill -TERM node")
        branch.until("tail -1 /work/node.log", r"^closed, the child with 3$")

    together(branches, go_on)
