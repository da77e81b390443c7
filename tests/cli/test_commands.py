"""The commands as a user runs them: what they print, how they exit, and that an interrupt leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import needs
from bunshin_gym import cli, debian, image, replay
from bunshin_gym.errors import ImageError
from bunshin_gym.report import load

BUNSHIN = [sys.executable, "-m", "bunshin_gym"]


def bunshin(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*BUNSHIN, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240)


def test_without_a_command_the_usage_is_shown() -> None:
    shown = bunshin()
    assert shown.returncode == 2
    assert "COMMAND" in shown.stderr
    summary = bunshin("--help").stdout
    for command in ("doctor", "demo", "run", "bench", "tree"):
        assert command in summary


def test_doctor_tells_whether_the_default_engine_works() -> None:
    found = bunshin("doctor", "--json")
    report = json.loads(found.stdout)
    assert set(report["engines"]) >= {"native", "dummy"}
    assert found.returncode == (1 if report["default-engine-trouble"] else 0)
    text = bunshin("doctor")
    assert text.returncode == found.returncode
    assert "debootstrap" in text.stdout
    assert ("works" if found.returncode == 0 else "does not work here") in text.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("run",), "nothing to run"),
        (("run", "--taskset", "nowhere"), "no task or taskset 'nowhere'"),
        (("run", "--taskset", "basic", "--task", "nowhere"), "no task is called 'nowhere'"),
        (("run", "--tasks", "/nowhere", "--trajectories", "/nowhere"), "cannot read /nowhere"),
        (("demo", "--taskset", "nowhere"), "no task or taskset"),
        (("tree", "/nowhere"), "cannot read /nowhere"),
        (("tree", "--width", "wide"), "argument --width: 'wide' is not a whole number from 1 on"),
        (("run", "--taskset", "basic", "--rollouts", "0"), "'0' is not a whole number from 1 on"),
        (("run", "--taskset", "basic", "--tree", "/nowhere/x"), "there is no directory /nowhere"),
        (("demo", "--think", "nan"), "argument --think: 'nan' is no number of seconds"),
        (("bench", "rollout", "--rollouts", "8,x"), "'x' is not a whole number from 1 on"),
        (("tree", sys.executable), "neither a report nor JSON"),
        (("run", "--taskset", "basic", "--baseline"), "--baseline is for a report"),
        (("run", "--taskset", "basic", "--report", "/nowhere/r.html"), "there is no directory /nowhere"),
        (("demo", "--report", "/"), "cannot write /: it is a directory"),
        (("demo", "--engine", "nowhere", "--rollouts", "1"), "there is no engine 'nowhere'"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(args: tuple[str, ...], words: str) -> None:
    shown = bunshin(*args)
    assert shown.returncode in (1, 2)
    assert words in shown.stderr
    assert "Traceback" not in shown.stderr


@pytest.mark.engine("native")
class TestOnTheNativeEngine:
    def test_run_plays_a_taskset(self, tmp_path: Path) -> None:
        kept = tmp_path / "report.html"
        saved = tmp_path / "saved.tree"
        args = ("run", "--taskset", "fix_failing_test", "--rollouts", "3", "--report", str(kept), "--tree", str(saved))
        shown = bunshin(*args)
        assert shown.returncode == 0, shown.stderr
        line = shown.stdout.splitlines()[-1].split()
        assert line[:2] == ["fix_failing_test", "3"]
        assert "3/3" in line
        tree = bunshin("tree", str(kept))
        assert tree.returncode == 0
        assert "fix_failing_test  3 rollouts" in tree.stdout
        assert "3x cat README.md" in tree.stdout
        tree = bunshin("tree", str(saved))
        assert "fix_failing_test: " in tree.stdout
        assert "3x cat README.md" in tree.stdout
        again = bunshin(*args, "--baseline")  # goes on with it: nothing is run
        assert again.stdout.splitlines()[-1].split()[:4] == ["fix_failing_test", "3", line[2], "0"]
        assert "3/3" in again.stdout
        (one,) = load(kept)["runs"]
        assert [mode["name"] for mode in one["modes"]] == ["bunshin", "neither cache nor sharing"]
        assert one["modes"][0]["stats"]["hits"] == int(line[2]) and one["modes"][1]["stats"]["hits"] == 0
        saved.write_bytes(saved.read_bytes()[:-1])
        refused = bunshin(*args)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert f"cannot use the call tree {saved}: it is damaged" in refused.stderr

    def test_run_replays_a_recording(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: object) -> None:
        calls = [
            ("echo hi > f; cat f", "hi\n", 0),
            ("cat f; exit 3", "hi\n", 3),
            ("x=1; echo $x; pwd", "1\n/work\n", 0),
            ("echo ${x-none}; date +%s >/dev/null", "none\n", 0),
        ]
        records = [
            {
                "arguments": {"command": command},
                "recorded_output": output,
                "recorded_rc": code,
                "replay_rc": code,
                "replay_similarity": 1.0,
            }
            for command, output, code in calls
        ]
        task = {
            "task_id": "t",
            "setup": [],
            "shell": ["/bin/sh", "-c"],
            "cwd": "/work",
            "env": {"PATH": "/usr/bin:/bin"},
            "call_timeout_s": 20,
            "plain_bash": True,
        }
        (tmp_path / "tasks").write_text(json.dumps(task))
        rollouts = [json.dumps({"task_id": "t", "rollout_id": f"t#{n}", "calls": records}) for n in range(3)]
        (tmp_path / "rollouts").write_text("\n".join(rollouts))
        monkeypatch.setattr(replay, "image_of", lambda task: image.Image.host())
        code = cli.main(
            ["run", "--json", "--tasks", str(tmp_path / "tasks"), "--trajectories", str(tmp_path / "rollouts")]
        )
        report = json.loads(capsys.readouterr().out)  # type: ignore[attr-defined]
        assert code == 0, report
        assert (report["rollouts"], report["calls"]) == (3, 12)
        assert (report["codes_agree"], report["codes_comparable"]) == (12, 12)
        assert (report["same_agree"], report["same_comparable"]) == (12, 12)
        assert report["stats"]["hits"] + report["stats"]["waits"] == 6  # all but what asks for the time, and below it

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_an_interrupt_closes_everything(self, number: signal.Signals, tmp_path: Path) -> None:
        """The residue check of every test sees what is left of the processes below."""
        environment = {**os.environ, "BUNSHIN_STATE_DIR": str(tmp_path)}
        args = [*BUNSHIN, "demo", "--rollouts", "4", "--think", "1000"]
        process = subprocess.Popen(
            args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
            preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # whoever runs the tests may ignore it
        )  # fmt: skip
        while not list(tmp_path.glob("*/layers/*")):  # until the first workspaces are there
            assert process.poll() is None, process.communicate()
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (130, "")
        assert "interrupted" in err
        assert "Traceback" not in err
        assert list(tmp_path.iterdir()) == []

    def test_the_demo_compares(self, tmp_path: Path) -> None:
        page = tmp_path / "demo.json"
        args = ("demo", "--taskset", "log_hunt", "--rollouts", "4", "--think", "0", "--json", "--report", str(page))
        shown = bunshin(*args)
        assert shown.returncode == 0, shown.stderr
        report = json.loads(shown.stdout)
        cold, warm, ours = report["outcomes"]
        assert [outcome["mode"] for outcome in report["outcomes"]] == ["cold", "warm pool", "bunshin"]
        assert cold["calls"] == warm["calls"] == ours["calls"] == cold["run"]
        assert ours["run"] + ours["hits"] == ours["calls"]
        assert ours["hits"] > 0
        assert ours["prepared"] == 1
        assert cold["solved"] == warm["solved"] == ours["solved"]
        assert report["answers"] == report["answers_equal"] == cold["calls"]
        (run,) = load(page)["runs"]
        assert [mode["name"] for mode in run["modes"]] == ["bunshin", "warm pool", "cold"]
        assert all(mode["memory"] and mode["phases"]["run"] > 0 for mode in run["modes"])
        assert sum(one.get("hits", 0) + one.get("waits", 0) for one in run["tasks"][0]["branches"]) == ours["hits"]


# -- the Debian root of recordings


def test_the_placeholder_becomes_the_machines_mirror() -> None:
    command = "echo 'deb-src http://mirror.example/debian bookworm main' > list; ping mirror.example"
    assert debian.with_mirror(command, "http://deb.local/debian") == (
        "echo 'deb-src http://deb.local/debian bookworm main' > list; ping deb.local"
    )
    assert "https://a.local/x/debian bookworm" in debian.with_mirror(command, "https://a.local/x/debian")


def test_without_debootstrap_there_is_no_root_and_a_way_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUNSHIN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("shutil.which", lambda *args, **kwargs: None)
    with pytest.raises(ImageError, match="debootstrap is missing"):
        debian.root()
    assert [path.name for path in tmp_path.iterdir()] == ["debian-bookworm.lock"]


def test_a_root_that_is_there_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUNSHIN_CACHE_DIR", str(tmp_path))
    (tmp_path / "debian-bookworm").mkdir()
    assert debian.root() == tmp_path / "debian-bookworm"


def test_needs_are_named() -> None:
    assert needs.missing("gcc") in ("", "the program gcc (Debian: apt-get install gcc)")
    with pytest.raises(pytest.UsageError, match="unknown need"):
        needs.missing("a pony")
