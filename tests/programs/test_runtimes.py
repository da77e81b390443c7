"""Go, Java and Rust: many threads, timers, garbage collectors and servers of their own, forked while all of it runs."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from programs.scene import SOURCES, Branch, Scene, build_folder, together

pytestmark = [pytest.mark.engine("native"), pytest.mark.timeout(280)]

ASK = """
import http.client, json
kept = http.client.HTTPConnection("127.0.0.1", 8090, timeout=60)
def ask(path, connection=None):
    c = connection or http.client.HTTPConnection("127.0.0.1", 8090, timeout=60)
    c.request("GET", path); return json.loads(c.getresponse().read())
"""


def make(*command: str, **environment: str) -> None:
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-4000:]}"


@functools.cache
def built(language: str) -> bytes:
    """The program, compiled once a run."""
    folder = build_folder()
    if language == "go":
        # The cache is Go's own, so that its library is compiled once a machine.
        make("go", "build", "-o", f"{folder}/go", str(SOURCES / "machine.go"), GOFLAGS="-mod=mod", GO111MODULE="off")
        return (folder / "go").read_bytes()
    if language == "java":
        make("javac", "-d", f"{folder}/classes", str(SOURCES / "Machine.java"))
        make("jar", "cf", f"{folder}/machine.jar", "-C", f"{folder}/classes", ".")
        return (folder / "machine.jar").read_bytes()
    crate = folder / "machine_rust"
    shutil.copytree(SOURCES / "machine_rust", crate)
    (crate / ".cargo").mkdir()
    (crate / ".cargo" / "config.toml").write_text(
        '[source.crates-io]\nreplace-with = "debian"\n[source.debian]\ndirectory = "/usr/share/cargo/registry"\n'
    )
    subprocess.run(["cargo", "build", "--offline", "--quiet"], cwd=crate, check=True, timeout=250, capture_output=True)
    return (crate / "target/debug/machine").read_bytes()


def ring(members: int, hops: int) -> int:
    return sum(hop * ((hop - 1) % members + 1) % 1000 for hop in range(1, hops + 1))


def play(scene: Scene, source: Branch, version: str, doing: str) -> list[dict[str, int]]:
    """From where the server answers: fork in the middle, let all go on; the result of each."""
    source.until("curl -sf http://127.0.0.1:8090/far")
    source.py(ASK + "assert ask('/child?say=before') == 'echo before\\n'; begun = ask('/far', kept)")
    source.until("curl -sf http://127.0.0.1:8090/far", r"^[3-9]\d|\d\d\d")
    branches = scene.fork(source, version, doing)

    def go_on(branch: Branch) -> dict[str, int]:
        n = branch.number
        answer = branch.py(f"""
assert ask("/own?n={n}") == ["{n}"]
assert ask("/own?n=more", kept) == ["{n}", "more"]
assert ask("/child?say=branch-{n}") == "echo branch-{n}\\n"
waited = ask("/after?ms=200"); assert 190 <= waited < 5000, waited
result = ask("/result")
far = ask("/far", kept); assert far > begun, far
print(json.dumps(result))
""")
        result: dict[str, int] = json.loads(answer)
        return result

    return together(branches, go_on)


@pytest.mark.needs("go", "curl")
def test_go(scene: Scene) -> None:
    source = scene.source()
    source.put("/work/machine", built("go"), 0o755)
    source.start("/work/machine")
    version = subprocess.run(["go", "version"], capture_output=True, text=True, check=True).stdout.split()[2]
    results = play(
        scene, source, f"echo {version}",
        "1,100 goroutines: a ring of channels, sleepers, a ticker; net/http with its own client; the collector",
    )  # fmt: skip
    for result in results:
        assert result.pop("goroutines") < 300, "the sleepers have not ended"
        assert result == {
            "ring": ring(100, 40000), "slept": 1000, "unsorted": 0, "collected": 12, "wrong": 0, "missed": 0
        }  # fmt: skip


@pytest.mark.needs("javac", "curl")
@pytest.mark.parametrize(
    ("collector", "options"),
    [
        pytest.param("G1", "", id="G1"),  # its sockets are IPv6, and the clients' IPv4
        pytest.param("Z", "-Djava.net.preferIPv4Stack=true", id="Z", marks=pytest.mark.thorough),
        pytest.param("Serial", "-Djava.net.preferIPv4Stack=true", id="Serial", marks=pytest.mark.thorough),
    ],
)  # fmt: skip
def test_java(scene: Scene, collector: str, options: str) -> None:
    source = scene.source()
    source.put("/work/machine.jar", built("java"))
    source.start(f"java {options} -XX:+Use{collector}GC -Xmx200m -cp /work/machine.jar Machine")
    results = play(
        scene, source, f"echo java $(java -version 2>&1 | sed -n '1s/.*\"\\(.*\\)\".*/\\1/p'), {collector}GC",
        "threads in a ring of queues, timers, HttpServer with its own client, the collector, the compiler, a child",
    )  # fmt: skip
    for result in results:
        assert result == {"ring": ring(8, 4000), "slept": 200, "wrong": 0}


def has_tokio() -> bool:
    return any(Path("/usr/share/cargo/registry").glob("tokio-1*"))


@pytest.mark.needs("cargo", "curl")
@pytest.mark.skipif(not has_tokio(), reason="needs tokio's sources (Debian: apt-get install librust-tokio-dev)")
def test_rust_with_tokio(scene: Scene) -> None:
    source = scene.source()
    source.put("/work/machine", built("rust"), 0o755)
    source.start("/work/machine")
    results = play(
        scene, source, "echo rust with tokio",
        "1,100 tasks: a ring of channels, sleepers, an interval; a server with its own client; blocking threads",
    )  # fmt: skip
    assert len({result.pop("blocking") for result in results}) == 1
    for result in results:
        assert result == {"ring": ring(100, 40000), "slept": 1000, "wrong": 0}
