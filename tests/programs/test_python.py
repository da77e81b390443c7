"""Python: its ways of doing many things at once, a computation, a kernel, a language server, a run of tests."""

from __future__ import annotations

import hashlib
import importlib.util
import json

import pytest
from programs.scene import SOURCES, Branch, Scene, together

pytestmark = [pytest.mark.engine("native"), pytest.mark.timeout(180)]
VERSION = "python3 --version"


def needs_package(name: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(name) is None
    return pytest.mark.skipif(missing, reason=f"needs the Python package {name} (scripts/programs)")


def crunched(seed: int) -> str:
    digest = str(seed).encode()
    for _ in range(60000):
        digest = hashlib.sha256(digest).digest()
    return digest.hex()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_everything_at_once(scene: Scene, method: str) -> None:
    source = scene.source()
    source.sh("mkfifo /work/go")
    source.put("/work/tangle.py", (SOURCES / "tangle.py").read_text())
    source.start(f"python3 /work/tangle.py {method}")
    source.until("cat /work/busy", "busy")
    shared = source.sh("ls /dev/shm")
    branches = scene.fork(
        source, f'echo "$({VERSION}), multiprocessing by {method}"',
        "asyncio (server, clients, queue, timeout, subprocess), threads, a Pool, shared memory, a Manager, "
        "a ProcessPoolExecutor, a pipeline",
    )  # fmt: skip

    def go_on(branch: Branch) -> None:
        assert branch.sh("ls /dev/shm") == shared
        branch.sh(f"echo branch {branch.number} >/work/go")
        branch.until("test -e /work/result", patience=90)
        result = json.loads(branch.get("/work/result"))
        memory = bytes((part * 7 + i) % 251 for part in range(8) for i in range(1000))
        assert result == {
            "asyncio": [480, True, 1830, "timed out"],
            "threads": [[0, 1, 2, 3], 2001000],
            "pipeline": [True, 0, 0],
            "squares": sum(n * n for n in range(120)),
            "filled": [list(range(8)), hashlib.sha256(memory).hexdigest()],
            "hashes": HASHES,
            "counted": [1500, [0, 0, 0]],
            "word": f"branch {branch.number}",
            "left": 1,
        }
        branch.until("! pgrep -f tangle.py >/dev/null")
        assert branch.get("/work/python3.log") == ""
        assert branch.sh("ls /dev/shm") == "", "semaphores and memory are unlinked by their names at the end"

    together(branches, go_on)


HASHES = hashlib.sha256("".join(crunched(seed) for seed in range(10)).encode()).hexdigest()


@needs_package("pandas")
def test_numpy_and_pandas(scene: Scene) -> None:
    source = scene.source()
    source.py("""
import threading, numpy as np, pandas as pd
rng = np.random.default_rng(7)
big = rng.standard_normal((400, 400))
frame = pd.DataFrame({"key": rng.integers(0, 50, 100000), "value": rng.standard_normal(100000)})
scratch = np.memmap("/work/scratch", dtype="f8", mode="w+", shape=(1000,)); scratch[:] = 1
steps, sums, stop = 0, [], 60
def work():
    global steps
    m = big.copy()
    while steps < stop:
        m = m @ big; m /= np.abs(m).max()              # BLAS in threads of its own
        sums.append(float(frame.groupby("key").value.sum().abs().sum()))
        scratch[steps] = steps; steps += 1
    global final
    final = m
worker = threading.Thread(target=work); worker.start()
import time
while steps < 5: time.sleep(0.01)
""")
    branches = scene.fork(
        source,
        "python3 -c 'import numpy, pandas; print(\"numpy\", numpy.__version__, \"pandas\", pandas.__version__)'",
        "matrix products in BLAS's threads, group-by over a frame, a shared mapping of a file being written",
    )  # fmt: skip

    def go_on(branch: Branch) -> str:
        return branch.py(
            f"""
own = rng.standard_normal()                       # the generator's state came along: all draw the same
frame2 = frame.assign(own={branch.number}).query("key == 3")
assert (frame2.own == {branch.number}).all() and len(frame2) == (frame.key == 3).sum()
worker.join(60); assert not worker.is_alive() and steps == stop
assert len(set(sums)) == 1, set(sums)
assert (np.memmap("/work/scratch", dtype="f8", mode="r")[:stop] == np.arange(stop)).all()
frame2.to_csv("/work/out.csv"); assert pd.read_csv("/work/out.csv").own.unique().tolist() == [{branch.number}]
import hashlib; print(own, hashlib.sha256(final.tobytes()).hexdigest())
""",
            90,
        )

    assert len(set(together(branches, go_on))) == 1


@needs_package("ipykernel")
@needs_package("jupyter_client")
def test_a_jupyter_kernel_and_its_client(scene: Scene) -> None:
    source = scene.source()
    source.py(
        """
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name="python3", extra_arguments=["--HistoryManager.hist_file=:memory:"])
def outputs(msg_id, timeout=60):
    text = []
    while True:
        message = client.get_iopub_msg(timeout=timeout)
        if message["parent_header"].get("msg_id") != msg_id: continue
        kind, content = message["msg_type"], message["content"]
        if kind == "stream": text.append(content["text"])
        elif kind == "execute_result": text.append(content["data"]["text/plain"])
        elif kind == "error": text.append(content["ename"])
        elif kind == "status" and content["execution_state"] == "idle": return "".join(text)
def ask(code): return outputs(client.execute(code))
assert ask("import time, threading; x = 41; x + 1") == "42"
running = client.execute("for i in range(40):\\n    print(i, end=' ', flush=True); time.sleep(0.05)\\nprint(x)")
while True:
    message = client.get_iopub_msg(timeout=60)
    if message["msg_type"] == "stream" and "3 " in message["content"]["text"]: break
""",
        60,
    )
    branches = scene.fork(
        source, "python3 -c 'import ipykernel; print(\"ipykernel\", ipykernel.__version__)'",
        "a cell that prints, over ZeroMQ; its client; heartbeats",
    )  # fmt: skip

    def go_on(branch: Branch) -> None:
        n = branch.number
        branch.py(
            f"""
text = outputs(running); assert text.split()[-2:] == ["39", "41"] and "20 21 22" in text, text
reply = client.get_shell_msg(timeout=30); reply = client.get_shell_msg(timeout=30)
got = ask("x += {n}; x"); assert got == "{41 + n}", got
busy = client.execute("print('on', flush=True); time.sleep(60)")
while client.get_iopub_msg(timeout=30)["msg_type"] != "stream": pass
manager.interrupt_kernel(); got = outputs(busy); assert got.strip() == "KeyboardInterrupt", got
assert ask("x * 100") == "{(41 + n) * 100}"
assert client.is_alive() and manager.is_alive()
assert client.complete("threading.Thre", reply=True, timeout=30)["content"]["matches"]
client.stop_channels(); manager.shutdown_kernel(); assert not manager.is_alive()
""",
            90,
        )

    together(branches, go_on)


@needs_package("pylsp")
def test_a_language_server(scene: Scene) -> None:
    source = scene.source()
    source.py(
        """
import json, subprocess, sys
server = subprocess.Popen([sys.executable, "-m", "pylsp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
number = 0
def send(**message):
    data = json.dumps({"jsonrpc": "2.0"} | message).encode()
    server.stdin.write(b"Content-Length: %d\\r\\n\\r\\n" % len(data) + data); server.stdin.flush()
def answer_to(number):
    while True:
        length = 0
        while (line := server.stdout.readline().strip()):
            if line.lower().startswith(b"content-length"): length = int(line.split()[1])
        message = json.loads(server.stdout.read(length))
        if message.get("id") == number and "method" not in message: return message["result"]
def ask(method, wait=True, **params):
    global number
    number += 1; send(id=number, method=method, params=params)
    return answer_to(number) if wait else number
assert ask("initialize", processId=None, rootUri="file:///work", capabilities={})["capabilities"]["completionProvider"]
send(method="initialized", params={})
where = {"uri": "file:///work/a.py"}
text = "import json\\n\\ndef greet(name):\\n    '''Hello.'''\\n    return 'hello ' + name\\n\\ngreet('x')\\njson.du"
document = where | {"languageId": "python", "version": 1, "text": text}
send(method="textDocument/didOpen", params={"textDocument": document})
pending = ask("textDocument/completion", wait=False, textDocument=where, position={"line": 7, "character": 7})
""",
        60,
    )
    branches = scene.fork(
        source,
        "python3 -c 'import pylsp; print(\"pylsp\", pylsp.__version__)'",
        "a document open and changed, a completion asked for",
    )

    def go_on(branch: Branch) -> None:
        n = branch.number
        branch.py(
            f"""
labels = [item["label"] for item in answer_to(pending)["items"]]
assert any("dumps" in label for label in labels), labels
new = text.replace("greet", "greet_{n}")
changes = {{"textDocument": where | {{"version": 2}}, "contentChanges": [{{"text": new}}]}}
send(method="textDocument/didChange", params=changes)
at = {{"line": 6, "character": 2}}
(found,) = ask("textDocument/definition", textDocument=where, position=at); assert found["range"]["start"]["line"] == 2
assert "greet_{n}" in json.dumps(ask("textDocument/hover", textDocument=where, position=at))
names = [s["name"] for s in ask("textDocument/documentSymbol", textDocument=where)]; assert "greet_{n}" in names, names
assert ask("shutdown") is None
send(method="exit"); assert server.wait(30) == 0
""",
            90,
        )

    together(branches, go_on)


@needs_package("xdist")
def test_pytest_with_xdist(scene: Scene) -> None:
    source = scene.source()
    source.put(
        "/work/suite/test_many.py",
        """
import os, time, pytest
@pytest.fixture(scope="session")
def once(tmp_path_factory): return tmp_path_factory.mktemp("once")
@pytest.mark.parametrize("n", range(30))
def test_one(n, once, capfd):
    time.sleep(0.05)
    os.write(1, b"x"); assert capfd.readouterr().out == "x"
    (once / str(n)).write_text(str(n))
    if n == 29:
        while not os.path.exists("/work/word"): time.sleep(0.01)
        assert open("/work/word").read() == "3"
    assert n != 7, "seven is wrong"
""",
    )
    source.start("python3 -m pytest -p no:cacheprovider -n 2 -v --junitxml=/work/report.xml /work/suite")
    source.until("grep -c PASSED /work/python3.log", r"^([3-9]|1\d)$")
    branches = scene.fork(
        source,
        "python3 -c 'import pytest, xdist; print(\"pytest\", pytest.__version__, \"and xdist\", xdist.__version__)'",
        "two workers in the middle of a run of 30 tests",
    )  # fmt: skip

    def go_on(branch: Branch) -> None:
        # Only the third child's word is the right one for the last test.
        branch.sh(f"echo -n {branch.number} >/work/word.new; mv /work/word.new /work/word")
        branch.until("! pgrep -f suite >/dev/null")
        wrong = 1 if branch.number == 3 else 2
        log = branch.get("/work/python3.log")
        assert f"{wrong} failed, {30 - wrong} passed" in log, log[-2000:]
        assert "seven is wrong" in log
        assert branch.sh('grep -o \'tests="[0-9]*"\\|failures="[0-9]*"\' /work/report.xml').split() == [
            f'failures="{wrong}"',
            'tests="30"',
        ]

    together(branches, go_on)
