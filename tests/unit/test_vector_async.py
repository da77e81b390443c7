"""send and recv out of step, and groups that go through a taskset by epochs."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.tasks import TASKS

from bunshin_gym import BunshinVectorEnv, Task, Taskset
from bunshin_gym.curriculum import Curriculum
from bunshin_gym.engines.dummy import Faults

Make = Callable[..., BunshinVectorEnv]
NEXT, SAME, DISABLED = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED
MODES = [NEXT, SAME, DISABLED]
MANY = Taskset([Task(f"t{i}", f"Do {i}.", files={"n": f"{i}\n".encode()}) for i in range(5)], "many")


class Gates:
    """A verifier that waits at a gate of its own: by the number the workspace holds."""

    def __init__(self) -> None:
        self.open = defaultdict(threading.Event)  # type: ignore[var-annotated]

    def __call__(self, workspace: Any) -> float:
        assert self.open[workspace.run("cat who").output.strip()].wait(60)
        return 1.0


# -- out of step


def test_those_that_are_ready_come_first(make_vector: Make) -> None:
    gates = Gates()
    envs = make_vector(3, task=Task("t", "do", verifier=gates), cache=False)
    envs.reset(seed=0)
    envs.step([f"echo {i} > who" for i in range(3)])
    envs.send(["submit"] * 3)
    observations, rewards, terminations, truncations, infos = envs.recv(timeout=0)
    assert observations == ()
    assert rewards.shape == terminations.shape == truncations.shape == infos["env_id"].shape == (0,)
    for who in (2, 0):
        gates.open[str(who)].set()
        observations, rewards, terminations, truncations, infos = envs.recv(min_envs=1)
        assert infos["env_id"].tolist() == [who]
        assert infos["env_id"].dtype == np.int64
        assert (observations, rewards.tolist(), terminations.tolist()) == (("submitted",), [1.0], [True])
        assert infos["exit_reason"].tolist() == ["submitted"]
    gates.open["1"].set()
    assert envs.recv()[4]["env_id"].tolist() == [1], "a batch that was taken apart tells whose its rest is"
    with pytest.raises(RuntimeError, match="nothing was sent"):
        envs.recv()


def test_each_gets_its_next_action_when_its_last_result_is_there(make_vector: Make) -> None:
    gates = Gates()
    envs = make_vector(2, task=Task("t", "do", verifier=gates), cache=False)
    envs.reset(seed=0)
    envs.step(["echo 0 > who; X=0", "echo 1 > who; X=0"])
    envs.send(["submit", "pwd"])
    assert envs.recv(min_envs=1)[4]["env_id"].tolist() == [1]
    for i in range(1, 4):
        envs.send(["X=$((X+1)); echo $X"], ids=[1])
        assert envs.recv(min_envs=1)[0] == (f"{i}\n",)
    with pytest.raises(RuntimeError, match=r"environments \[0\]"):
        envs.send(["pwd"], ids=np.array([0]))
    with pytest.raises(RuntimeError, match="have not been received"):
        envs.step(["pwd", "pwd"])
    with pytest.raises(ResetNeeded, match=r"\[0\]"):
        envs.reset()
    gates.open["0"].set()
    envs.recv()
    envs.step(["pwd", "pwd"])


def test_a_batch_is_put_together_as_step_does(make_vector: Make) -> None:
    """The same actions, out of step and in step: the same transitions."""
    menu = ["echo a; X=$((X+1)); echo $X", "nosuch", "submit", "a\0b", "exit 3", "bunshin-fault lose"]
    rng = np.random.default_rng(0)
    for mode in (NEXT, SAME):
        a, b = (make_vector(4, taskset=TASKS, autoreset_mode=mode) for _ in range(2))
        a.reset(seed=3)
        b.reset(seed=3)
        for _ in range(12):
            actions = [menu[i] for i in rng.integers(len(menu), size=4)]
            inside = a.step(actions)
            order = rng.permutation(4)
            b.send([actions[i] for i in order], ids=order)
            batches = [b.recv(min_envs=1)]
            while sum(len(batch[0]) for batch in batches) < 4:
                batches.append(b.recv(min_envs=1))
            for observations, rewards, terminations, truncations, infos in batches:
                assert observations in gym.vector.utils.batch_space(b.single_observation_space, len(observations))
                for j, i in enumerate(infos["env_id"]):
                    assert observations[j] == inside[0][i]
                    assert (rewards[j], terminations[j], truncations[j]) == tuple(x[i] for x in inside[1:4])
                    assert _one(infos, j) == _one(inside[4], i)


def _one(infos: dict[str, Any], i: int) -> dict[str, Any]:
    """What the infos say of one environment."""
    return {
        key: _one(value, i) if isinstance(value, dict) else value[i]
        for key, value in infos.items()
        if not key.startswith("_") and key != "env_id" and infos[f"_{key}"][i]
    }


@pytest.mark.parametrize("mode", MODES)
def test_a_late_one_has_a_deadline_of_its_own(make_vector: Make, mode: AutoresetMode) -> None:
    envs = make_vector(2, step_timeout=1.0, autoreset_mode=mode)
    envs.reset(seed=0)
    envs.send(["sleep 60"], ids=[0])
    envs.send(["echo quick"], ids=[1])
    assert envs.recv(min_envs=1)[0] == ("quick\n",)
    *_, truncations, infos = envs.recv()
    assert (infos["env_id"].tolist(), truncations.tolist()) == ([0], [True])
    late = infos["final_info"] if mode is SAME else infos
    assert late["failure_kind"].tolist() == ["timed_out"]
    if mode is NEXT:
        envs.send(["pwd"], ids=[0])
        envs.recv()
    if mode is DISABLED:
        envs.reset(options={"reset_mask": np.array([True, False])})
    envs.send(["echo on"], ids=[0])
    assert envs.recv()[0] == ("on\n",)


def test_one_may_be_reset_while_others_are_out(make_vector: Make) -> None:
    gates = Gates()
    envs = make_vector(2, task=Task("t", "do", verifier=gates), cache=False, autoreset_mode=DISABLED)
    envs.reset(seed=0)
    envs.step(["echo 0 > who", "X=1"])
    envs.send(["submit"], ids=[0])
    envs.reset(options={"reset_mask": np.array([False, True])})
    envs.send(["echo .$X"], ids=[1])
    assert envs.recv(min_envs=1)[0] == (".\n",)
    gates.open["0"].set()
    envs.recv()
    with pytest.raises(ResetNeeded, match=r"\[0\]"):
        envs.send(["pwd"], ids=[0])


def test_a_fault_of_one_stops_no_other(make_vector: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    envs = make_vector(3)
    envs.reset(seed=0)

    def step(action: str) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(envs.envs[0], "step", step)
    envs.send(["pwd", "bunshin-fault lose", "echo on"])
    got: dict[int, str] = {}
    while len(got) < 3:
        *_, infos = envs.recv(min_envs=1)
        got |= dict(zip(infos["env_id"].tolist(), infos["failure_kind"].tolist(), strict=True))
    assert got == {0: "internal_error", 1: "workspace_lost", 2: ""}


def test_misuse_is_told(make_vector: Make) -> None:
    envs = make_vector(2)
    envs.reset(seed=0)
    for ids in ([2], [-1], [0, 0]):
        with pytest.raises(ValueError):
            envs.send(["pwd"] * len(ids), ids=ids)
    for ids in ([0.5], ["0"], [[0]], 0):
        with pytest.raises(TypeError):
            envs.send(["pwd"], ids=ids)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        envs.send(["pwd"], ids=[0, 1])
    envs.send(["pwd"], ids=[0])
    for kwargs in ({"min_envs": 0}, {"min_envs": 3}, {"timeout": -1.0}, {"timeout": float("nan")}):
        with pytest.raises(ValueError):
            envs.recv(**kwargs)  # type: ignore[arg-type]
    assert len(envs.recv(min_envs=2)[0]) == 1, "never more than are out"
    with pytest.raises(ResetNeeded):
        make_vector(2).send(["pwd"], ids=[0])


def test_close_while_some_are_out(make_vector: Make) -> None:
    envs = make_vector(2)
    envs.reset(seed=0)
    envs.send(["sleep 60", "pwd"])
    envs.recv(min_envs=1)
    start = time.monotonic()
    envs.close(timeout=5)
    assert time.monotonic() - start < 30


# -- groups


@settings(max_examples=200, deadline=None)
@given(
    tasks=st.integers(1, 7),
    groups=st.integers(1, 4),
    size=st.integers(1, 4),
    seed=st.integers(0, 5),
    turns=st.lists(st.integers(0, 15), max_size=60),
)
def test_every_task_once_an_epoch_and_the_same_for_all_of_a_group(
    tasks: int, groups: int, size: int, seed: int, turns: list[int]
) -> None:
    names = [str(i) for i in range(tasks)]
    curriculum = Curriculum(names, groups, size, seed)
    drawn: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for turn in turns:
        member = turn % (groups * size)
        draw = curriculum.advance(member)
        assert draw == Curriculum(names, groups, size, seed).at(draw.number)
        assert draw.group == member // size
        drawn[draw.number].append((member, draw.task))
    for plays in drawn.values():
        assert len({task for _, task in plays}) == 1
        assert len({member for member, _ in plays}) == len(plays), "each member plays a draw once"
    for epoch in range(3):
        played = [curriculum.at(epoch * tasks + i) for i in range(tasks)]
        assert {draw.epoch for draw in played} == {epoch}
        assert sorted(draw.task for draw in played) == sorted(names)


def test_epochs_differ_and_follow_from_the_seed() -> None:
    names = [str(i) for i in range(20)]
    one = Curriculum(names, 2, 2, 7)
    assert one.order(0) != one.order(1)
    assert one.order(1) == Curriculum(names, 3, 1, 7).order(1) != Curriculum(names, 3, 1, 8).order(1)


@pytest.mark.parametrize("mode", MODES)
def test_groups_go_through_the_taskset(make_vector: Make, mode: AutoresetMode) -> None:
    envs = make_vector(4, group_size=2, taskset=MANY, autoreset_mode=mode)
    observations, infos = envs.reset(seed=1)
    plays: Counter[tuple[int, str, int]] = Counter()
    for _ in range(10 if mode is not NEXT else 20):
        assert infos["group"].tolist() == [0, 0, 1, 1]
        observations = envs.step(["cat n"] * 4)[0]
        assert observations == tuple(f"{task[1:]}\n" for task in infos["task"])
        *_, infos = envs.step(["submit"] * 4)
        ended = infos["final_info"] if mode is SAME else infos
        plays.update(zip(ended["group_id"].tolist(), ended["task"].tolist(), ended["epoch"].tolist(), strict=True))
        if mode is NEXT:
            *_, infos = envs.step(["pwd"] * 4)
        if mode is DISABLED:
            infos = envs.reset()[1]
    assert set(plays.values()) == {2}
    epoch = [task for number, task, number_of_epoch in sorted(plays) if number_of_epoch == 1]
    assert sorted(epoch) == MANY.names
    assert envs.stats.prepared == len(MANY), "a task's template serves later epochs, too"


def test_the_same_seed_gives_the_same_tasks_whoever_is_faster(make_vector: Make) -> None:
    def draws(slow: int) -> dict[int, list[tuple[int, str]]]:
        envs = make_vector(4, group_size=2, taskset=MANY, autoreset_mode=SAME, prepare_ahead=0)
        infos = envs.reset(seed=5)[1]
        seen = {i: [(int(infos["group_id"][i]), str(infos["task"][i]))] for i in range(4)}
        for _ in range(6):
            ids = [i for i in range(4) if i != slow]
            envs.send(["submit"] * 3, ids=ids)
            *_, infos = envs.recv()
            for j, i in enumerate(infos["env_id"]):
                seen[i].append((int(infos["group_id"][j]), str(infos["task"][j])))
        return seen

    one, two = draws(slow=0), draws(slow=3)
    for i in range(4):
        short = min(len(one[i]), len(two[i]))
        assert one[i][:short] == two[i][:short]
    assert one[2] == one[3]


def test_a_whole_group_begins_together_and_a_part_goes_on_by_itself(make_vector: Make) -> None:
    envs = make_vector(4, group_size=2, taskset=MANY, autoreset_mode=DISABLED)
    assert envs.reset(seed=0)[1]["group_id"].tolist() == [0, 0, 1, 1]
    part = np.array([True, False, False, False])
    assert envs.reset(options={"reset_mask": part})[1]["group_id"][0] == 2
    assert envs.reset()[1]["group_id"].tolist() == [4, 4, 3, 3]
    assert envs.reset(options={"task": "t3"})[1]["task"].tolist() == ["t3"] * 4
    with pytest.raises(ValueError, match="one group"):
        envs.reset(options={"task": ["t0", "t1", "t2", "t2"]})
    assert envs.reset(seed=0)[1]["group_id"].tolist() == [0, 0, 1, 1]


def test_templates_are_prepared_ahead(make_vector: Make) -> None:
    prepared: list[str] = []
    third = threading.Event()

    def task(name: str) -> Task:
        def image() -> Any:
            prepared.append(name)
            if len(prepared) == 3:
                third.set()
            return None

        return Task(name, "do", image=image)

    tasks = Taskset([task(f"t{i}") for i in range(6)])
    envs = make_vector(4, group_size=2, taskset=tasks, prepare_ahead=1)
    envs.reset(seed=0)
    assert third.wait(30), "the next draw's workspace is prepared while the first ones are played"
    order = Curriculum(tasks.names, 2, 2, 0).order(0)
    assert (set(prepared[:2]), prepared[2:]) == (set(order[:2]), [order[2]])
    envs.reset(options={"reset_mask": np.array([True, True, False, False])})
    assert prepared.count(order[2]) == 1


def test_a_template_that_fails_ahead_is_tried_when_it_is_needed(make_vector: Make, faults: Faults) -> None:
    tries: list[int] = []

    def image() -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("no image")

    tasks = Taskset([Task("good", "do"), Task("bad", "do", image=image)])
    seed = next(s for s in range(9) if Curriculum(tasks.names, 1, 2, s).order(0)[0] == "good")
    envs = make_vector(2, group_size=2, taskset=tasks, autoreset_mode=SAME)
    envs.reset(seed=seed)
    assert envs.step(["submit"] * 2)[4]["task"].tolist() == ["bad", "bad"]
    assert len(tries) == 2


def test_an_automatic_reset_that_fails_keeps_its_draw(make_vector: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    envs = make_vector(2, group_size=2, taskset=MANY, autoreset_mode=SAME)
    envs.reset(seed=0)
    env = envs.envs[1]
    fail = [True]

    def reset(**kwargs: Any) -> Any:
        if fail[0]:
            raise OSError("not now")
        return type(env).reset(env, **kwargs)

    monkeypatch.setattr(env, "reset", reset)
    assert envs.step(["submit"] * 2)[4]["group_id"].tolist() == [1, 1]
    fail[0] = False
    *_, truncations, infos = envs.step(["cat n"] * 2)
    assert truncations.tolist() == [False, True]
    assert infos["group_id"].tolist() == [1, 1], "the same draw is tried again"
    assert envs.step(["cat n"] * 2)[0] == (f"{infos['task'][0][1:]}\n",) * 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"group_size": 3},
        {"group_size": 0},
        {"group_size": -2},
        {"prepare_ahead": 1},
        {"group_size": 2, "prepare_ahead": -1},
    ],
)
def test_groups_that_make_no_sense(make_vector: Make, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        make_vector(4, **wrong)


def test_groups_through_make_vec() -> None:
    envs = gym.make_vec("bunshin/Shell-v0", num_envs=4, group_size=2, taskset=MANY, engine="dummy")
    again = gym.make_vec("bunshin/Shell-v0", num_envs=4, group_size=2, taskset=MANY, engine="dummy")
    assert data_equivalence(envs.reset(seed=2), again.reset(seed=2), exact=True)
    for actions in (["pwd"] * 4, ["submit", "pwd", "submit", "pwd"], ["pwd"] * 4):
        assert data_equivalence(envs.step(actions), again.step(actions), exact=True)
    envs.close()
    again.close()
