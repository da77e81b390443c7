"""What a test cannot do without, and the sentence its skip says.

    @pytest.mark.needs("gcc", "cgroup")         on a test
    @pytest.mark.engine("native")               the same as needs("engine native")
    needs.require("engine native")              inside a fixture, for parametrised engines

A need is probed by trying it, once a run. With BUNSHIN_REQUIRE_ENGINES=1 a missing need is a failure, not a
skip; only who runs the tests ("root", "ordinary user") stays a skip, since nobody can be both at once.
"""

from __future__ import annotations

import functools
import glob
import os
import shutil
from collections.abc import Callable

import pytest

FORCED = os.environ.get("BUNSHIN_REQUIRE_ENGINES") == "1"
IDENTITIES = ("root", "ordinary user")


# Servers are not always on an ordinary user's path.
_WHERE = ":".join([os.environ.get("PATH", os.defpath), "/usr/sbin", *glob.glob("/usr/lib/postgresql/*/bin")])


def _program(name: str, package: str | None = None) -> Callable[[], str]:
    def probe() -> str:
        return (
            "" if shutil.which(name, path=_WHERE) else f"the program {name} (Debian: apt-get install {package or name})"
        )

    return probe


def _engine(name: str) -> str:
    """An engine works when a workspace of it answers a call."""
    from bunshin_gym.errors import BunshinError
    from bunshin_gym.workspace import Workspace

    try:
        with Workspace(engine=name) as workspace:
            result = workspace.run("true", timeout=30)
    except (BunshinError, ImportError) as error:
        return f"a working {name} engine ({error})"
    return "" if result.exit_code == 0 else f"a working {name} engine (`true` gave {result.exit_reason})"


# What tests/programs plays, by its Debian package where that has another name.
_PROGRAMS: dict[str, str | None] = {
    "redis-server": None,
    "nginx": None,
    "initdb": "postgresql",
    "sqlite3": None,
    "go": "golang-go",
    "javac": "openjdk-17-jdk-headless",
    "rustc": None,
    "cargo": None,
    "tmux": None,
    "vim": None,
    "script": "bsdutils",
    "less": None,
    "top": "procps",
    "g++": None,
    "perl": None,
    "ruby": None,
    "gdb": None,
    "ssh-agent": "openssh-client",
    "gpg-agent": None,
    "dbus-daemon": None,
    "curl": None,
    "openssl": None,
    "Xvfb": "xvfb",
    "openbox": None,
    "xterm": None,
    "mousepad": None,
    "featherpad": None,
    "mtpaint": None,
    "pcmanfm": None,
    "chromium": None,
}


_PROBES: dict[str, Callable[[], str]] = {
    "root": lambda: "" if os.geteuid() == 0 else "root",
    "ordinary user": lambda: "" if os.geteuid() != 0 else "an ordinary user (the tests run as root)",
    "gcc": _program("gcc"),
    "make": _program("make"),
    "node": _program("node", "nodejs"),
    "git": _program("git"),
    "debootstrap": _program("debootstrap"),
    "runc": _program("runc"),
    "setpriv": _program("setpriv", "util-linux"),
    "criu": _program("criu"),
    **{name: _program(name, package) for name, package in _PROGRAMS.items()},
}


@functools.cache
def missing(need: str) -> str:
    """What `need` lacks on this machine, in words that follow "needs"; empty when it is there."""
    if need.startswith("engine "):
        return _engine(need.removeprefix("engine "))
    try:
        return _PROBES[need]()
    except KeyError:
        raise pytest.UsageError(f"unknown need {need!r}; tests/needs.py knows {', '.join(_PROBES)}") from None


def require(need: str) -> None:
    """Skip the running test where `need` is missing, or fail it when skips are forbidden."""
    reason = missing(need)
    if not reason:
        return
    if FORCED and need not in IDENTITIES:
        pytest.fail(f"needs {reason}, and BUNSHIN_REQUIRE_ENGINES=1 forbids skipping", pytrace=False)
    pytest.skip(f"needs {reason}")
