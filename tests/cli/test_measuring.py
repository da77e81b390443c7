"""The measuring itself: the meter sees what there is, and commands print what was measured."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys

import pytest

from bunshin_gym.bench import meter
from bunshin_gym.bench.demo import Outcome, Report
from bunshin_gym.bench.fork import Figures
from bunshin_gym.bench.hits import measure_hits
from bunshin_gym.bench.scale import TREES, Row, Tree, machine, start_tree
from bunshin_gym.cli import bench, demo, hits
from bunshin_gym.cli.terminal import megabytes, table

SIZE = 64 << 20
HOLD = f"import sys; held = b'x' * {SIZE}; print('held', flush=True); sys.stdin.read()"


def holder() -> subprocess.Popen[bytes]:
    child = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"held\n"
    return child


def end(child: subprocess.Popen[bytes]) -> None:
    child.communicate()


def test_memory_of_a_child_counts() -> None:
    before = meter.sample()
    child = holder()
    try:
        assert child.pid in meter.descendants(os.getpid())
        seen = meter.sample()
        assert seen.processes == before.processes + 1
        assert SIZE <= seen.total - before.total <= 2 * SIZE
    finally:
        end(child)
    assert meter.pss(child.pid) == 0


def test_grandchildren_count() -> None:
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {HOLD!r}])"
    before = meter.sample()
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        assert meter.sample().processes == before.processes + 2
        assert meter.sample().total - before.total >= SIZE
    finally:
        end(child)


def test_a_page_store_counts_once_however_often_it_is_held() -> None:
    store = os.memfd_create("bunshin-store")
    again = os.dup(store)
    try:
        os.write(store, bytes(1 << 20))
        before = meter.sample()
        assert before.stores == 1 << 20
        with mmap.mmap(store, 1 << 20, flags=mmap.MAP_PRIVATE):
            assert meter.sample().stores == 1 << 20
    finally:
        os.close(store)
        os.close(again)
    assert meter.sample().stores == 0


def test_a_meter_keeps_peak_and_integral() -> None:
    with meter.Meter(interval=0.01) as read:
        child = holder()
        while read.peak < SIZE:  # its own thread looks; wait until it has seen the child
            pass
        end(child)
    assert read.peak >= SIZE
    assert 0 < read.integral <= read.peak * read.seconds
    assert read.samples > 1


def test_an_empty_meter_measures_little() -> None:
    with meter.Meter(interval=0.01) as read:
        pass
    assert read.peak < SIZE


def test_tables_are_aligned() -> None:
    text = table(("task", "n"), [("a", 1), ("longer", 100)])
    assert text.splitlines() == ["task      n", "------  ---", "a         1", "longer  100"]
    assert megabytes(1_234_567) == "1.2"
    assert megabytes(1_234_567_890) == "1235"


def test_the_demo_compares_with_every_baseline(capsys: object) -> None:
    outcomes = [
        Outcome("cold", 8, 80, 80, 0, 8, 0, 6, 200_000_000, 4e8, 10.0, 50),
        Outcome("bunshin", 8, 80, 40, 40, 1, 8, 6, 100_000_000, 1e8, 5.0, 50),
    ]
    demo.show(Report(outcomes, 80, 79, ["x: 'a' is now 'b'"]))
    text = capsys.readouterr().out  # type: ignore[attr-defined]
    assert "bunshin against cold: peak memory -50 %, memory over time -75 %, wall time -50 %" in text
    assert "79 of 80 answers are those of the cold run" in text
    assert "x: 'a' is now 'b'" in text


def test_the_bench_prints_every_figure() -> None:
    figures = Figures(
        numpy=True,
        start_ms=300.0,
        fork_ms=3.0,
        fork_to_start=0.01,
        batch=64,
        batch_answered=64,
        growth={"processes": 0, "bytes": 100_000},
        snapshot_stages={"freeze": 0.5},
        criu={"version": "4.2", "dump_ms": 400.0, "restore_ms": 300.0, "image_bytes": 5e7},
        trees=[Row("100 processes", 101, 101, 900.0, 45.0, 0.05, 400.0, 90.0)],
        machine=machine(),
    )
    text = "\n".join(bench.lines(figures))
    for part in (
        "1/100 of a start",
        "64 of 64 answer",
        "0 processes, 0.1 MB",
        "CRIU 4.2",
        "freeze 0.50",
        "45.0 ms        1/20",
        "Linux",
    ):
        assert part in text
    figures.criu = {"missing": "runc is not installed"}
    assert "runc is not installed" in "\n".join(bench.lines(figures))


def test_hits_are_measured_in_a_tree_of_that_size() -> None:
    rows = measure_hits(500, hits=500, on_part=lambda *_: None, on_step=lambda: None)
    assert [(row.by_state, row.hits) for row in rows] == [(False, 500), (True, 500)]
    for row in rows:
        assert row.nodes >= 500
        assert 0 < row.median_us <= row.p90_us <= row.p99_us <= row.p999_us <= row.max_us
    text = "\n".join(hits.lines(rows))
    assert "at another history of the state" in text and "99.9 %" in text


@pytest.mark.engine("native")
@pytest.mark.parametrize("tree", TREES, ids=lambda tree: tree.name)
def test_the_larger_trees_are_what_they_are_called(tree: Tree) -> None:
    with start_tree(tree, "native") as workspace:
        python = [process.pid for process in workspace.processes() if process.comm == "python3"]
        counts = [int(workspace.run(f"wc -l < /proc/{pid}/maps").output) for pid in python[:12]]
        with workspace.snapshot() as snapshot:
            report = snapshot.report
    if "mappings" in tree.name:
        assert max(counts) >= 60000
    elif "threads" in tree.name:
        assert report.threads >= 1000
    elif "desktop" in tree.name:
        assert len(python) == 12 and sum(300 <= count <= 1000 for count in counts) == 11
    else:
        assert report.processes >= 100
