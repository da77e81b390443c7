"""The residue check itself: a check that cannot fail would hide every leak."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import residue


def test_a_quiet_test_leaves_nothing() -> None:
    assert residue.since(residue.look(), grace=0) == []


def test_a_child_process_is_seen_and_gone_when_reaped() -> None:
    before = residue.look()
    child = subprocess.Popen(["sleep", "60"])
    try:
        assert any(str(child.pid) in line and "sleep" in line for line in residue.since(before, grace=0))
    finally:
        child.kill()
        child.wait()
    assert residue.since(before) == []


def test_an_orphan_named_after_us_is_seen() -> None:
    before = residue.look()
    # A double fork: the middle process ends, so the grandchild is no descendant of this process any more.
    code = (
        "import ctypes, os, sys, time\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid(); ctypes.CDLL(None).prctl(15, b'bunshin-init', 0, 0, 0)\n"
        "print(os.getpid(), flush=True); sys.stdout.close(); os.close(1); time.sleep(60)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout
    orphan = int(out)
    try:
        assert any(str(orphan) in line for line in residue.since(before, grace=0))
    finally:
        os.kill(orphan, 9)
    assert residue.since(before) == []


def test_directories_and_shared_memory_are_seen(tmp_path: Path) -> None:
    before = residue.look()
    made = Path(f"/dev/shm/residue-{os.getpid()}")
    folder = Path(f"/tmp/bunshin-residue-{os.getpid()}")
    made.touch()
    folder.mkdir()
    try:
        left = "\n".join(residue.since(before, grace=0))
    finally:
        made.unlink()
        folder.rmdir()
    assert str(made) in left
    assert str(folder) in left
    assert residue.since(before) == []
