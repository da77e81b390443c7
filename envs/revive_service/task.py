"""Two live programs, one of them ill; the verifier asks the running one, and a fresh one with the mended settings."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bunshin_gym.envs import _judge
from bunshin_gym.task import Task
from bunshin_gym.workspace import Workspace

SHOP = "/work/shop"
TREE = _judge.tree(Path(__file__).parent / "files" / "shop", SHOP)
SETTINGS = f"{SHOP}/gateway.json"
GATEWAY = f"{SHOP}/gateway.py"
LIVE = "http://127.0.0.1:8080"
CATALOGUE = "http://127.0.0.1:9301/v2"
SPARE_PORT = 8099
ARTICLES = 40_000

INSTRUCTION = f"""\
The shop in {SHOP} does not answer on 127.0.0.1:8080; its README.md tells how it should. The programs are fine and so
is the running catalogue; something is wrong with the gateway's settings. Change only gateway.json, get the gateway to
run again and leave it running. Submit when you are done."""

# One catalogue, in the background, and one try to start the gateway, which leaves its complaint in the log.
SETUP = f"""\
cd {SHOP}
setsid python3 catalogue.py catalogue.json </dev/null >/dev/null 2>&1 &
until python3 -c 'import socket; socket.create_connection(("127.0.0.1", 9301))' 2>/dev/null; do sleep 0.05; done
sh start.sh"""

ASK = """
import json, urllib.error, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
def ask(method, url, body=None):
    data = None if body is None else json.dumps(body).encode()
    try:
        with opener.open(urllib.request.Request(url, data, method=method), timeout=5) as reply:
            return [reply.status, json.load(reply)]
    except urllib.error.HTTPError as error:
        return [error.code, None]
    except (OSError, ValueError):
        return [0, None]
"""

ASK_LIVE = (
    ASK
    + """
import sys
print(json.dumps([ask(*request) for request in json.loads(sys.argv[1])]))
"""
)

ASK_FRESH = (
    ASK
    + """
import subprocess, sys
gateway = subprocess.Popen([sys.executable, "-I", "-S", "-B", *sys.argv[2:]], stdout=subprocess.PIPE)
try:
    gateway.stdout.readline()
    print(json.dumps([ask(*request) for request in json.loads(sys.argv[1])]))
finally:
    gateway.kill()
"""
)

# An article that the verifier brings, so that the answers must come from the living catalogue.
HIDDEN = {"number": 777_001, "title": "gilded samovar in rosewood model 9", "cents": 123_405, "note": ""}


def expected() -> list[list[Any]]:
    """What QUESTIONS must be answered with."""
    article: Callable[[int], dict[str, Any]] = runpy.run_path(TREE_CATALOGUE)["article"]
    teak = [number for number in range(1, ARTICLES + 1) if "teak" in article(number)["title"].split()]

    def page(found: dict[str, Any]) -> list[Any]:
        price = f"{found['cents'] // 100}.{found['cents'] % 100:02d} CHF"
        return [200, {"number": found["number"], "title": found["title"], "price": price}]

    return [
        [200, {"status": "ok", "articles": ARTICLES + 1}],
        page(article(17)),
        page(article(39_999)),
        page(HIDDEN),
        [200, {"query": "samovar", "count": 1, "numbers": [HIDDEN["number"]]}],
        [200, {"query": "teak", "count": len(teak), "numbers": teak[:10]}],
    ]


QUESTIONS = (
    "/health",
    "/article/17",
    "/article/39999",
    "/article/777001",
    "/search?q=samovar",
    "/search?q=teak",
)
TREE_CATALOGUE = str(Path(__file__).parent / "files" / "shop" / "catalogue.py")


def questions(base: str) -> list[list[Any]]:
    return [["GET", base + path] for path in QUESTIONS]


def verify(ws: Workspace) -> float:
    """1.0 where the live gateway is right, and so is a fresh, pristine one with the same settings; else 0.0."""
    if not _judge.unchanged(ws, {path: content for path, content in TREE.items() if path != SETTINGS}):
        return 0.0
    try:
        settings = json.loads(_judge.read_text(ws, SETTINGS) or "")
        listens = settings["listen"]
    except (ValueError, TypeError, KeyError):
        return 0.0
    if listens not in ("127.0.0.1:8080", "localhost:8080", "0.0.0.0:8080"):
        return 0.0
    asked = [["PUT", f"{CATALOGUE}/article", HIDDEN], *questions(LIVE)]
    if _judge.python(ws, ASK_LIVE, json.dumps(asked)) != [[200, {"status": "kept"}], *expected()]:
        return 0.0
    ws.write_file("/tmp/verify/gateway.py", TREE[GATEWAY])
    spare = f"127.0.0.1:{SPARE_PORT}"
    ws.write_file("/tmp/verify/gateway.json", json.dumps({**settings, "listen": spare}).encode())
    fresh = json.dumps(questions(f"http://{spare}"))
    answers = _judge.python(ws, ASK_FRESH, fresh, "/tmp/verify/gateway.py", "/tmp/verify/gateway.json")
    return float(answers == expected())


def settings(**changes: object) -> str:
    """A command that changes the gateway's settings."""
    return f"""\
python3 - <<'EOF'
import json
settings = json.load(open("gateway.json"))
settings.update({changes!r})
json.dump(settings, open("gateway.json", "w"), indent=4)
EOF
cat gateway.json"""


def get(*urls: str) -> str:
    """A command that prints what some addresses answer."""
    return f"""\
python3 - <<'EOF'
import urllib.request
for url in {list(urls)!r}:
    try:
        print(url, urllib.request.urlopen(url, timeout=3).read().decode()[:200])
    except OSError as error:
        print(url, error)
EOF"""


LOOK = (
    f"cd {SHOP} && ls -l",
    "cat README.md",
    "cat gateway.log gateway.json catalogue.json",
    "cat gateway.py",
)
RESTART = "sh start.sh"
HEALTH = get(f"{LIVE}/health", f"{LIVE}/article/17", f"{LIVE}/search?q=lamp")
DIRECT = get(f"{CATALOGUE}/count", "http://127.0.0.1:9301/v1/count")
LISTEN = settings(listen="127.0.0.1:8080")
UPSTREAM = settings(catalogue=CATALOGUE, timeout_seconds=2)
FRANCS = settings(currency="CHF")
ALL = settings(listen="127.0.0.1:8080", catalogue=CATALOGUE, timeout_seconds=2, currency="CHF")

# Something that answers on the right port, and that it is well.
IMPOSTOR = """\
cat > /tmp/ok.py <<'EOF'
import json
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"status": "ok", "articles": 40000}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
HTTPServer(("127.0.0.1", 8080), Handler).serve_forever()
EOF
setsid python3 /tmp/ok.py </dev/null >/dev/null 2>&1 &
until python3 -c 'import socket; socket.create_connection(("127.0.0.1", 8080))' 2>/dev/null; do sleep 0.05; done"""

EASIER_PROGRAM = """\
sed -i 's/timeout=settings\\["timeout_seconds"\\]/timeout=2/' gateway.py"""

WRONG = {
    "it listens, but finds no catalogue": (*LOOK, LISTEN, RESTART, HEALTH),
    "the settings are mended, but it is not started": (*LOOK, ALL),
    "the prices are in euros": (*LOOK, LISTEN, UPSTREAM, RESTART, HEALTH),
    "an impostor answers": (*LOOK, ALL, IMPOSTOR, HEALTH),
    "the program is changed": (*LOOK, EASIER_PROGRAM, ALL, RESTART, HEALTH),
}

TASK = Task(
    name="revive_service",
    instruction=INSTRUCTION,
    files=TREE,
    setup=(SETUP,),
    verifier=verify,
    live_verifier=True,
    step_limit=24,
    solution=(*LOOK, ALL, RESTART, HEALTH),
    wrong=WRONG["it listens, but finds no catalogue"],
    scripts={
        "all at once": (*LOOK, ALL, RESTART, HEALTH),
        "one by one": (*LOOK, LISTEN, RESTART, HEALTH, UPSTREAM, RESTART, HEALTH, FRANCS, RESTART, HEALTH),
        "asks the catalogue later": (*LOOK, LISTEN, RESTART, HEALTH, DIRECT, UPSTREAM, FRANCS, RESTART, HEALTH),
        "asks the catalogue first": (*LOOK, DIRECT, ALL, RESTART, HEALTH),
        "forgets the currency": (*LOOK, LISTEN, RESTART, HEALTH, UPSTREAM, RESTART, HEALTH),
        "reads the log": (*LOOK, DIRECT, ALL, RESTART, HEALTH, "cat gateway.log"),
    },
)
