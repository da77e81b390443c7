"""Small services that tools lean on: agents that hold keys, a message bus, TLS, a file server."""

from __future__ import annotations

import pytest
from programs.scene import SOURCES, Branch, Scene, together

pytestmark = [pytest.mark.engine("native"), pytest.mark.timeout(120)]


@pytest.mark.needs("ssh-agent")
def test_ssh_agent(scene: Scene) -> None:
    source = scene.source()
    source.sh(
        "cd /work && for kind in ed25519:one ed25519:two ecdsa:late; do "
        "ssh-keygen -q -t ${kind%:*} -N '' -f ${kind#*:} || exit; done"
    )
    source.sh(
        "eval $(ssh-agent -a /work/agent) && ssh-add -q one && ssh-add -q -t 600 two && rm one && echo data >data"
    )
    branches = scene.fork(
        source,
        "ssh -V 2>&1 | sed 's/,.*//'",
        "ssh-agent with two keys, one of them with a lifetime; the key's file is gone",
    )

    def go_on(branch: Branch) -> None:
        n = branch.number
        if n % 2:
            branch.sh("ssh-add -q -d /work/two.pub")
        branch.sh(f"ssh-add -q -C own{n} /work/late 2>/dev/null || ssh-add -q /work/late")
        assert len(branch.sh("ssh-add -l").splitlines()) == (2 if n % 2 else 3)
        branch.sh(f"cd /work && echo {n} >>data && ssh-keygen -q -Y sign -f one.pub -n test data 2>/dev/null")
        branch.sh(
            "cd /work && (echo -n 'me '; cat one.pub) >signers && "
            "ssh-keygen -q -Y verify -f signers -I me -n test -s data.sig <data"
        )
        branch.sh("ssh-agent -k >/dev/null && ! ssh-add -l 2>/dev/null")

    together(branches, go_on)


@pytest.mark.needs("gpg-agent")
def test_gpg_agent(scene: Scene) -> None:
    source = scene.source(env={"GNUPGHOME": "/work/gnupg", "HOME": "/work"})
    source.sh("mkdir -m 700 /work/gnupg; gpg-agent --homedir /work/gnupg --daemon --allow-preset-passphrase >/dev/null")
    gpg = "gpg --batch --quiet --no-tty --pinentry-mode loopback"
    source.sh(f"{gpg} --passphrase secret --quick-generate-key tester ed25519 sign never", 60)
    # From now on the agent remembers what the key is locked with.
    source.sh(f"{gpg} --passphrase secret -o /work/first.sig --detach-sign /work/gnupg/pubring.kbx")
    branches = scene.fork(source, "gpg --version | head -1", "gpg-agent, the passphrase of a key in its locked memory")

    def go_on(branch: Branch) -> None:
        n = branch.number
        if n == 3:
            branch.sh("echo RELOADAGENT | gpg-connect-agent >/dev/null")  # forgets
        branch.put("/work/data", f"branch {n}")
        signed = branch.workspace.run(
            "gpg --batch --quiet --no-tty --pinentry-mode error -o /work/sig --detach-sign /work/data 2>&1", 30
        )
        assert (signed.exit_code == 0) == (n != 3), signed.output
        if n != 3:
            assert "Good signature" in branch.sh("LC_ALL=C gpg --verify /work/sig /work/data 2>&1")
        branch.sh("gpgconf --kill gpg-agent")

    together(branches, go_on)


@pytest.mark.needs("dbus-daemon")
def test_dbus(scene: Scene) -> None:
    source = scene.source()
    source.start("dbus-daemon --session --nofork --nopidfile --address=unix:path=/work/bus")
    bus = "DBUS_SESSION_BUS_ADDRESS=unix:path=/work/bus"
    source.until(
        f"{bus} dbus-send --session --print-reply --dest=org.freedesktop.DBus / org.freedesktop.DBus.ListNames",
        "org.freedesktop.DBus",
    )
    source.start(f"env {bus} dbus-monitor --session interface=org.test.News")
    source.until(f"{bus} dbus-send --session /a org.test.News.Item string:before; cat /work/env.log", 'string "before"')
    source.put("/work/bus.py", (SOURCES / "bus.py").read_text())
    source.py("""
import sys; sys.path.insert(0, "/work")
from bus import Bus
owner, caller = Bus("/work/bus"), Bus("/work/bus")
assert owner.ask("RequestName", "org.test.Owner") is not None
serial = caller.call("org.test.Owner", "/x", "org.test.Iface", "Question", "pending")
question = owner.hear("Question")
""")
    branches = scene.fork(
        source, "dbus-daemon --version | head -1", "a monitor, an owner of a name, a call that waits for its answer"
    )

    def go_on(branch: Branch) -> None:
        n = branch.number
        branch.py(f"""
owner.answer(question, "answer {n}"); assert caller.result(serial) == "answer {n}"
again = caller.call("org.test.Owner", "/x", "org.test.Iface", "Question", "second {n}")
second = owner.hear("Question"); assert second.text == "second {n}", second.text
owner.answer(second, second.text.upper()); assert caller.result(again) == "SECOND {n}"
late = Bus("/work/bus"); assert late.name not in (owner.name, caller.name)
""")
        branch.sh(f"{bus} dbus-send --session /a org.test.News.Item string:own{n}")
        branch.until("cat /work/env.log", f'string "own{n}"')
        assert branch.sh("grep -c 'string \"own' /work/env.log") == "1\n"
        branch.sh("pkill -x dbus-daemon")
        branch.until("! pgrep dbus-monitor >/dev/null")

    together(branches, go_on)


@pytest.mark.needs("openssl", "curl")
def test_a_tls_session(scene: Scene) -> None:
    source = scene.source()
    source.sh(
        "cd /work && openssl req -x509 -newkey rsa:2048 -nodes -keyout key -out cert -days 2 "
        "-subj /CN=localhost -addext subjectAltName=DNS:localhost 2>/dev/null"
    )
    source.start("openssl s_server -accept 127.0.0.1:4433 -cert /work/cert -key /work/key -rev -quiet")
    source.py("""
import socket, ssl, time
context = ssl.create_default_context(cafile="/work/cert")
def connect():
    for _ in range(300):
        try: plain = socket.create_connection(("127.0.0.1", 4433), timeout=30)
        except ConnectionRefusedError: time.sleep(0.02)
        else: return context.wrap_socket(plain, server_hostname="localhost")
tls = connect(); lines = tls.makefile("rwb")
def say(text): lines.write(text.encode() + b"\\n"); lines.flush(); return lines.readline().decode().strip()
assert say("before") == "erofeb"
lines.write(b"half a li"); lines.flush()
""")
    branches = scene.fork(
        source, "openssl version | cut -d' ' -f1-2", "s_server with a client of Python's ssl, half a line sent"
    )
    together(
        branches,
        lambda branch: branch.py(f"""
assert say("ne {branch.number}") == "half a line {branch.number}"[::-1]
assert tls.version() == "TLSv1.3" and say("more" * 2000) == ("more" * 2000)[::-1]
lines.close(); tls.close(); again = connect(); again.sendall(b"new {branch.number}\\n")
assert again.recv(100) == b"{branch.number} wen\\n"; again.close()
"""),
    )


@pytest.mark.needs("curl")
def test_a_file_server_a_download_and_a_follower_of_its_log(scene: Scene) -> None:
    source = scene.source()
    source.sh("mkdir /work/www && head -c 3000000 /dev/urandom >/work/www/big && true")
    source.start("python3 -u -m http.server --directory /work/www --bind 127.0.0.1 8000")
    source.until("curl -s -o /dev/null http://127.0.0.1:8000/")
    source.start("tail -n 0 -f ---disable-inotify -s 0.05 /work/python3.log")
    source.start("curl -sS --limit-rate 2M -o /work/got http://127.0.0.1:8000/big")
    source.until("stat -c %s /work/got", r"^[1-9]\d{5}")
    branches = scene.fork(
        source,
        "curl --version | cut -d' ' -f1-2 | head -1",
        "a throttled download from `python3 -m http.server`, `tail -f` on the server's log",
    )

    def go_on(branch: Branch) -> None:
        branch.sh(f"curl -s -o /dev/null http://127.0.0.1:8000/none{branch.number} & wait $!")
        branch.until("! pgrep -x curl >/dev/null")
        branch.sh("cmp /work/got /work/www/big")
        log = branch.until("cat /work/tail.log", f"none{branch.number}")
        assert log.count("none") == 1, log
        assert "replaced" not in log and "truncated" not in log, log

    together(branches, go_on)
