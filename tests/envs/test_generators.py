"""The generated inputs of tasks: the same for everyone, and really holding what the task is about."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from bunshin_gym.envs.broken_makefile import task as makefile
from bunshin_gym.envs.clean_data import readings
from bunshin_gym.envs.fix_failing_test import task as ranges
from bunshin_gym.envs.log_hunt import logs
from bunshin_gym.envs.sql_question import task as sql

ENVS = Path(__file__).parents[2] / "envs"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def test_tables_are_the_same_on_every_python() -> None:
    messy, clean = readings.make(11, 2500)
    assert (digest(messy), digest(clean)) == ("2f179c326fd0caa8", "c0e71c362b539805")


def test_a_messy_table_holds_every_difficulty() -> None:
    messy, clean = readings.make(11, 2500)
    rows = list(csv.DictReader(io.StringIO(messy.decode())))
    assert {row["Temperature"] for row in rows} >= set(readings.MISSING)
    assert any(row["Temperature"].endswith("F") for row in rows)
    assert any("," in row["Temperature"] for row in rows)
    assert any(row["Station"] != row["Station"].strip() for row in rows)
    assert len({re.sub(r"\d", "9", row["Time"]) for row in rows}) >= 4
    kept = list(csv.DictReader(io.StringIO(clean.decode())))
    assert len(kept) < len(rows) * 0.9
    keys = [(row["station"], row["time"]) for row in kept]
    assert keys == sorted(set(keys))


def test_logs_are_the_same_on_every_python() -> None:
    case = logs.make()
    plain = {
        path: gzip.decompress(content) if path.endswith(".gz") else content for path, content in case.files.items()
    }
    assert digest(b"".join(plain[path] for path in sorted(plain))) == "c557711a15982228"
    assert case.answer == logs.make(5).answer


def test_one_session_alone_was_used_by_a_stranger() -> None:
    case = logs.make()
    signed_in = set(re.findall(r"address=(\S+)", case.files["auth.log"].decode()))
    strangers: Counter[tuple[str, str]] = Counter()
    busiest: Counter[str] = Counter()
    for path, content in case.files.items():
        if "access" in path:
            text = gzip.decompress(content) if path.endswith(".gz") else content
            for line in text.decode().splitlines():
                address, _, session = line.split()[:3]
                busiest[address] += 1
                if session != "-" and address not in signed_in:
                    strangers[session, address] += 1
    assert strangers == {(case.answer["session"], case.answer["address"]): case.answer["requests"]}
    assert busiest.most_common(1)[0][0] == logs.CRAWLER


def test_the_shop_is_the_same_on_every_python_and_its_traps_bite() -> None:
    assert sql.expected() == [("DK", 6213227), ("BE", 5773505), ("AT", 5027767), ("CH", 4948559), ("DE", 4513832)]
    code = "import runpy, sys; print(sum(map(len, runpy.run_path(sys.argv[1])['rows']().values())))"
    out = subprocess.run([sys.executable, "-c", code, str(sql.BUILDER)], capture_output=True, text=True, check=True)
    assert int(out.stdout) > 30_000


def test_the_reference_of_ranges_agrees_with_examples() -> None:
    assert ranges.pages([(1, 3), (4, 6)]) == [(1, 6)]
    assert ranges.pages([(1, 9), (2, 3), (12, 12)]) == [(1, 9), (12, 12)]
    assert ranges.written([(1, 3), (5, 5)]) == ["1-3,5", 4]
    assert ranges.parsed("1-3,5,8-", 10) == [(1, 3), (5, 5), (8, 10)]


def test_the_reference_of_the_word_counter_agrees_with_the_programs_own_test() -> None:
    given = ENVS / "broken_makefile" / "files" / "tally" / "test"
    assert makefile.tally((given / "text.txt").read_text()) == (given / "expected.txt").read_text()
