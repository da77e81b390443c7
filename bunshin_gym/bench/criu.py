"""The yardstick: unmodified CRIU under runc, dumping and restoring processes like those of the reference workspace.

Needs root, runc and criu. Where one of them is missing, or CRIU cannot do it on this kernel, the result says so.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

__all__ = ["compare_with_criu"]

_ROUNDS = 3
_TIMEOUT = 60.0
_BOUND = ("/usr", "/etc/alternatives", "/etc/ld.so.cache")
_LINKED = ("bin", "lib", "lib64", "sbin")

# A shell, an interpreter with as many random bytes, a server and a sleeping process.
_PROCESSES = """\
python3 -c 'import os, time; data = os.urandom({heap}); open("/tmp/ready", "w"); time.sleep(100000)' &
python3 -m http.server --bind 127.0.0.1 0 >/dev/null 2>&1 &
sleep 100000 &
wait
"""


class _Trouble(Exception):
    """A step that did not work, in one line."""


def compare_with_criu(heap: int) -> dict[str, Any]:
    """Milliseconds of dump and restore (medians), or `{"missing": why}`."""
    runc, criu = shutil.which("runc"), shutil.which("criu") or shutil.which("criu", path="/usr/sbin:/usr/local/sbin")
    if os.geteuid() != 0:
        return {"missing": "needs root"}
    if runc is None or criu is None:
        return {"missing": "runc is not installed" if runc is None else "criu is not installed"}
    name = f"bunshin-bench-{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="bunshin-criu-") as folder:
        try:
            return _measure(runc, criu, name, Path(folder), heap)
        except (_Trouble, OSError) as trouble:
            return {"missing": f"it does not work here: {trouble}"}
        finally:
            subprocess.run([runc, "delete", "--force", name], capture_output=True, check=False)


def _measure(runc: str, criu: str, name: str, folder: Path, heap: int) -> dict[str, Any]:
    version = subprocess.run([criu, "--version"], capture_output=True, text=True, check=False).stdout.split()
    path = _flag(runc, criu)
    bundle = _bundle(runc, folder, heap)
    log = folder / "runc.log"
    _run([runc, "run", "--detach", "--bundle", str(bundle), name], log)
    deadline = time.monotonic() + _TIMEOUT
    while not (bundle / "tmp/ready").exists():
        if time.monotonic() > deadline:
            raise _Trouble("the container does not come up")
        time.sleep(0.05)
    dumps, restores = [], []
    for number in range(_ROUNDS):
        image = folder / f"image{number}"
        begin = time.perf_counter()
        try:
            _run(
                [runc, *path, "checkpoint", "--image-path", str(image), "--work-path", str(folder / "work"), name], log
            )
        except _Trouble as trouble:
            raise _Trouble(_reason(folder / "work/dump.log") or str(trouble)) from None
        dumps.append((time.perf_counter() - begin) * 1000)
        begin = time.perf_counter()
        _run([runc, *path, "restore", "--detach", "--image-path", str(image), "--bundle", str(bundle), name], log)
        restores.append((time.perf_counter() - begin) * 1000)
    size = sum(path.stat().st_size for path in (folder / f"image{_ROUNDS - 1}").iterdir())
    return {
        "version": version[1] if len(version) > 1 else "?",
        "dump_ms": statistics.median(dumps),
        "restore_ms": statistics.median(restores),
        "image_bytes": size,
    }


def _bundle(runc: str, folder: Path, heap: int) -> Path:
    """An OCI bundle on the machine's own programs, read-only, with a /tmp of its own."""
    bundle = folder / "bundle"
    root = bundle / "rootfs"
    for path in ("proc", "dev", "sys", "tmp", *(bound.lstrip("/") for bound in _BOUND)):
        (root / path).mkdir(parents=True, exist_ok=True)
    (root / "etc/ld.so.cache").rmdir()
    (root / "etc/ld.so.cache").touch()
    for link in _LINKED:
        if Path("/", link).is_symlink():
            (root / link).symlink_to(f"usr/{link}")
    (bundle / "tmp").mkdir()
    _run([runc, "spec", "--bundle", str(bundle)], folder / "runc.log")
    config = json.loads((bundle / "config.json").read_text())
    config["process"].update(terminal=False, args=["/usr/bin/bash", "-c", _PROCESSES.format(heap=heap)])
    config["process"]["env"] = ["PATH=/usr/bin:/bin"]
    # The machine's own network: locking one of its own takes CRIU the iptables programs.
    config["linux"]["namespaces"] = [n for n in config["linux"]["namespaces"] if n["type"] != "network"]
    config["root"] = {"path": "rootfs", "readonly": True}
    config["mounts"] += [
        {"destination": bound, "type": "bind", "source": bound, "options": ["rbind", "ro"]} for bound in _BOUND
    ]
    config["mounts"].append(
        {"destination": "/tmp", "type": "bind", "source": str(bundle / "tmp"), "options": ["rbind", "rw"]}
    )
    (bundle / "config.json").write_text(json.dumps(config))
    return bundle


def _flag(runc: str, criu: str) -> list[str]:
    """How to tell this runc which criu to use: older ones want to be told, newer ones look in PATH."""
    usage = subprocess.run([runc, "--help"], capture_output=True, text=True, check=False).stdout
    return ["--criu", criu] if "--criu " in usage else []


def _reason(log: Path) -> str:
    """What CRIU's log says went wrong: the first error that is not one it goes on after."""
    if not log.exists():
        return ""
    lines = [line for line in log.read_text(errors="replace").splitlines() if "Error (" in line]
    causes = [line for line in lines if not any(word in line for word in (": exited", "execvp", "rlimit: "))]
    return f"criu: {causes[0].partition('): ')[2]}" if causes else ""


def _run(argv: list[str], log: Path) -> None:
    """Run a step of runc's. Its messages go to a file: a container keeps the streams of the runc that started it."""
    argv = [argv[0], "--log", str(log), *argv[1:]]
    silent = subprocess.DEVNULL
    try:
        subprocess.run(argv, stdin=silent, stdout=silent, stderr=silent, timeout=_TIMEOUT, check=True)
    except subprocess.TimeoutExpired:
        raise _Trouble(f"runc takes more than {_TIMEOUT:g} s") from None
    except subprocess.CalledProcessError:
        last = log.read_text(errors="replace").strip().splitlines()[-1:] if log.exists() else []
        raise _Trouble(f"runc: {' '.join(last)}") from None
