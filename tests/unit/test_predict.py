"""Predictors: what siblings did next, what usually follows, what is tried again; and probabilities that are honest."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from bunshin_gym.bench.predict import Score, evaluate
from bunshin_gym.cli import main
from bunshin_gym.errors import TaskError
from bunshin_gym.speculate.callback import Callback, Written
from bunshin_gym.speculate.learned import Learned
from bunshin_gym.speculate.past import Made, Past, paths, said, shape
from bunshin_gym.speculate.patterns import Patterns
from bunshin_gym.speculate.predict import Guess, Predictor
from bunshin_gym.speculate.ready import mixed
from bunshin_gym.speculate.retry import Retry
from bunshin_gym.speculate.siblings import Siblings
from bunshin_gym.tools import ToolCall, ToolResult


def shell(command: str) -> ToolCall:
    return ToolCall("shell", {"command": command})


def past(*commands: str, task: str = "t", text: str = "", output: str = "") -> Past:
    return Past(task, [Made(shell(command), ToolResult(output)) for command in commands], text)


def follow(predictor: Predictor, commands: Sequence[str], task: str = "t") -> None:
    """Let it see a whole rollout."""
    for number, command in enumerate(commands):
        predictor.learn(past(*commands[:number], task=task), shell(command))


def first(guesses: Sequence[Guess]) -> str:
    return str(guesses[0].call.args["command"]) if guesses else ""


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cat > a.py <<'EOF'\nopen('b.py')\nEOF", ("a.py",)),
        ("sed -n '1,5p' src/x.py | head -3", ("src/x.py",)),
        ("cp a.txt b.txt", ("a.txt", "b.txt")),
        ("echo hello", ()),
        ("./run.sh > out.log 2>&1", ("out.log", "./run.sh")),
    ],
)
def test_paths_of_a_command(command: str, expected: tuple[str, ...]) -> None:
    assert paths(command) == expected


def test_kinds_of_commands() -> None:
    assert shape("cat > a.py <<'EOF'\nx\nEOF") == shape("cat > b.py <<'EOF'\ny\nEOF") != shape("cat a.py")
    assert shape("python a.py") == shape("python3 b.py").replace("python3", "python") != shape("python -m pytest")
    assert shape("sed -i s/a/b/ x") != shape("sed -n 1p x")


def test_a_change_of_directory_is_a_habit() -> None:
    one = said(shell("cd /testbed && ls -la"))
    assert one is not None
    assert (one.habit, one.text) == ("cd /testbed && ", "ls -la")
    assert said(ToolCall("computer", {"x": 1})) is None


def test_siblings_are_followed_in_ones_own_way() -> None:
    predictor = Learned("siblings", [Siblings()])
    follow(predictor, ["ls", "cat a", "make test"])
    follow(predictor, ["ls", "cat a", "make test"])
    assert first(predictor.predict(past())) == "ls"
    assert first(predictor.predict(past("ls", "cat a"))) == "make test"
    assert first(predictor.predict(past("cd /w && ls", "cd /w && cat a"))) == "cd /w && make test"
    assert predictor.predict(past("ls", task="another")) == []


def test_a_call_that_is_no_text_is_foretold_too() -> None:
    predictor = Learned("siblings", [Siblings()])
    click, type_ = ToolCall("computer", {"action": "click"}), ToolCall("computer", {"action": "type"})
    predictor.learn(Past("t"), click)
    predictor.learn(Past("t", [Made(click, ToolResult(""))]), type_)
    assert predictor.predict(Past("t", [Made(click, ToolResult(""))]))[0].call == type_


def test_what_was_written_is_run_whatever_its_name() -> None:
    predictor = Learned("patterns", [Patterns()])
    for name in ("a.py", "b.py", "cc.py"):
        follow(predictor, ["ls", f"cat > {name} <<'EOF'\n1\nEOF", f"python {name}", f"rm {name}"], task=name)
    assert first(predictor.predict(past("ls", "cat > other.py <<'EOF'\n2\nEOF", task="new"))) == "python other.py"
    guesses = predictor.predict(past("cat > other.py <<'EOF'\n2\nEOF", "python other.py", task="new"))
    assert first(guesses) == "rm other.py"


def test_a_path_the_output_shows_is_looked_at() -> None:
    predictor = Learned("patterns", [Patterns()])
    for name in ("x/one.c", "y/two.c", "z/three.c"):
        made = [Made(shell("find ."), ToolResult(f"{name}\n"))]
        predictor.learn(Past(name), shell("find ."))
        predictor.learn(Past(name, made), shell(f"cat {name}"))
    assert first(predictor.predict(past("find .", output="w/four.c\n"))) == "cat w/four.c"


def test_the_test_is_tried_again_after_an_edit() -> None:
    predictor = Learned("retry", [Retry()])
    for task in map(str, range(8)):
        edits = [f"sed -i s/{task}/{n}/ f.py" for n in range(3)]
        follow(predictor, ["make test", edits[0], "make test", edits[1], "make test", edits[2], "make test"], task)
    assert first(predictor.predict(past("cargo x", "cat f", "make test", "sed -i s/q/r/ f.py"))) == "make test"


def test_a_mix_is_honest_about_chances() -> None:
    """After "a" comes "b" in three of ten cases: that is what is said, and all guesses together are less than 1."""
    rng = random.Random(3)
    mix = mixed()
    for _ in range(400):
        follow(mix, ["a", "b" if rng.random() < 0.3 else f"x{rng.random()}"])
    guesses = mix.predict(past("a"))
    chance = next(guess.probability for guess in guesses if guess.call == shell("b"))
    assert 0.15 < chance < 0.45
    assert sum(guess.probability for guess in guesses) < 1


def test_a_callback_is_believed_until_it_is_wrong() -> None:
    mix = mixed(Callback(lambda history, text: [("make", 0.8), (shell("ls"), 0.1), ("no", 7.0)] if text else []))
    guesses = mix.predict(past("a", text="let us make it"))
    assert [(first([guess]), round(guess.probability, 1)) for guess in guesses] == [("make", 0.8), ("ls", 0.1)]
    assert guesses[0].by == ("callback",)
    for number in range(50):
        mix.learn(past("a", text="let us make it"), shell(f"something else {number}"))
    guesses = mix.predict(past("a", text="let us make it"))
    assert next(guess.probability for guess in guesses if guess.call == shell("make")) < 0.2


def test_a_callback_that_fails_is_not_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    asked = []

    def predict(history: object, text: str) -> list[tuple[str, float]]:
        asked.append(text)
        raise KeyError("oh")

    callback = Callback(predict)
    assert callback.hints(past("a")) == callback.hints(past("b")) == []
    assert len(asked) == 1
    assert "is not asked again" in caplog.text


@pytest.mark.parametrize(
    "text", ["I will run it.\n```bash\nmake test\n```", 'So: {"tool": "shell", "args": {"command": "make test"}}']
)
def test_what_the_policy_has_written_is_run(text: str) -> None:
    assert [hint.call for hint in Written().hints(past("ls", text=text))] == [shell("make test")]
    assert Written().hints(past("ls", text=text[:-4])) == []


def test_scores() -> None:
    score = Score("p")
    score.count([Guess(shell("a"), 0.5), Guess(shell("b"), 0.25)], shell("a"), 2.0)
    score.count([Guess(shell("a"), 0.5), Guess(shell("b"), 0.25)], shell("b"), 1.0)
    score.count([], shell("c"), 1.0)
    found = score.as_dict()
    assert (found["top1"], found["top3"]) == (1 / 3, 2 / 3)
    assert (found["top1_seconds"], found["top3_seconds"], found["seconds"]) == (2.0, 3.0, 4.0)
    assert found["calibration_error"] == pytest.approx((0.5 * 0 + 0.5) / 4)


def record(task: str, number: int, commands: Sequence[str]) -> dict[str, object]:
    calls = [
        {
            "tool": "bash",
            "arguments": {"command": command},
            "recorded_output": "",
            "thinking_seconds": 1.0,
            "replay_rc": 0,
            "replay_seconds": 0.5,
            "read_only": command == "ls",
        }
        for command in commands
    ]
    return {"task_id": task, "rollout_id": f"{task}#{number}", "calls": calls}


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    task = {"setup": [], "shell": ["/bin/sh", "-c"], "cwd": "/", "env": {}, "call_timeout_s": 5, "plain_bash": True}
    rollouts = [record("f/t", n, ["ls", f"echo {n} > x", "make", "ls", "make check"]) for n in range(4)]
    (tmp_path / "tasks.jsonl").write_text(json.dumps({"task_id": "f/t", **task}) + "\n")
    (tmp_path / "trajectories.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rollouts))
    return tmp_path


def test_rollouts_that_were_not_learned_from_are_foretold(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "predict", "--trajectories", str(recording), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["families"]["f"]
    mix = found["all"][-1]
    assert (mix["predictor"], mix["calls"], mix["seconds"]) == ("mix", 20, 10.0)
    # Of ls, echo N, make, ls, make check all but the echo can be known; only the first ls was made after the same.
    assert mix["top1"] >= 0.6
    assert found["not in the tree"][-1]["calls"] == 16
    # make and make check take 0.5 s and are known to come; ls as well, but that leads nowhere new.
    drafts = found["drafts"]
    assert 0 < drafts["saved"] == 0.5 * drafts["adopted"] <= drafts["total"] == 10
    assert drafts["begun"] >= drafts["adopted"]
    assert main(["bench", "predict", "--trajectories", str(recording)]) == 0
    assert "not in the tree: 16 calls" in capsys.readouterr().out


def test_a_recording_that_cannot_be_learned_from_is_refused(recording: Path) -> None:
    with pytest.raises(TaskError, match="two rollouts"):
        evaluate([])
    with pytest.raises(ValueError, match="2 folds"):
        evaluate([], folds=1)
