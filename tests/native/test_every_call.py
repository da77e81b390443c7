"""Law 7, call by call: each system call of a fork and of a seal fails once, and each process is killed at each.

sweep.py does it, in a process of its own. A quarter of the places is tried always, the others where slow tests are.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bunshin_gym._native.library import init_path

pytestmark = [pytest.mark.engine("native"), pytest.mark.thorough]
PARTS = 4
CASES = [pytest.param(what, part, id=f"{what}-{part}") for what in ("fork", "seal", "killed") for part in range(PARTS)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("what", "part"), CASES)
def test_each_call_fails_once(what: str, part: int) -> None:
    """One clear error, or a fork that is right; in seconds; and the source as it was."""
    program = Path(__file__).parent / "sweep.py"
    command = [sys.executable, str(program), what, str(part), str(PARTS), str(Path(init_path()).parent.resolve())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-2000:]
    head, *records, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert last == {"done": True}
    wrong = [record for record in records if record["wrong"]]
    assert not wrong, "\n".join(map(str, wrong))
    by_chance = [record for record in records if "at_first" in record]
    assert len(by_chance) <= 2, "\n".join(map(str, by_chance))
    assert head["rules"] == len(records) > 35
    assert sum(record["fired"] for record in records) > 0.8 * len(records)
    # Failures are not hidden either: most calls matter.
    assert sum(bool(record["said"]) for record in records) > 0.4 * len(records)
