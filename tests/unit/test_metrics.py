"""What Prometheus is told: scraped as it does, and read by its own parser."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Callable
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families
from unit.tasks import ANSWER

from bunshin_gym import BunshinVectorEnv, RolloutPool, Stats, TaskError, ToolResult
from bunshin_gym.cli.serving import served
from bunshin_gym.errors import BunshinError
from bunshin_gym.metrics import Collector, Server, serve
from bunshin_gym.scripted import play_taskset

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(port: int) -> tuple[Samples, dict[str, str]]:
    """The samples by name and labels, and the type of each family."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    assert all(family.documentation for family in families)
    samples = {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}
    return samples, {family.name: family.type for family in families}


def test_counters_are_those_of_the_statistics(make_vector: Callable[..., BunshinVectorEnv]) -> None:
    envs = make_vector(4, task=ANSWER, audit=0.0)
    with serve(envs, port=0, job="train") as server:
        assert scrape(server.port)[0]["bunshin_calls_total", (("job", "train"),)] == 0
        envs.reset(seed=0)
        envs.step(["echo right > answer"] * 4)
        envs.step(["submit"] * 4)
        samples, types = scrape(server.port)
    labels = (("job", "train"),)
    assert samples["bunshin_calls_total", labels] == 4
    answered = samples["bunshin_hits_total", labels] + samples["bunshin_waits_total", labels]
    assert answered + samples["bunshin_misses_total", labels] == 4
    assert samples["bunshin_verified_total", labels] == 4
    assert samples["bunshin_saved_by_state_seconds_total", labels] == envs.stats.saved_by_state
    assert samples["bunshin_stage_seconds_total", (("job", "train"), ("stage", "run"))] == envs.stats.seconds["run"]
    assert set(types.values()) == {"counter"}
    server.close()


def test_a_pool_adds_what_it_is_doing() -> None:
    async def main() -> None:
        async with RolloutPool(task=ANSWER, engine="dummy") as pool, pool.rollout():
            with serve(pool, port=0) as server:
                samples, types = await asyncio.to_thread(scrape, server.port)
        assert samples["bunshin_pool_rollouts", ()] == 1
        assert samples["bunshin_pool_running", ()] == samples["bunshin_pool_waiting", ()] == 0
        assert types["bunshin_pool_rollouts"] == "gauge"

    asyncio.run(main())


def test_several_are_told_apart_by_their_labels() -> None:
    collector = Collector()
    first, second = Stats(calls=1), Stats(calls=2)
    collector.watch(first, task="a")
    collector.watch(second, task="b")
    (calls,) = [family for family in collector.collect() if family.name == "bunshin_calls"]
    assert [(sample.labels, sample.value) for sample in calls.samples] == [({"task": "a"}, 1), ({"task": "b"}, 2)]
    with pytest.raises(ValueError, match="something else is watched"):
        collector.watch(Stats(), task="b")
    with pytest.raises(ValueError, match=r"labels are \['job'\], not \['task'\]"):
        collector.watch(Stats(), job="b")


def test_a_port_that_is_taken() -> None:
    with serve(port=0) as server, pytest.raises(BunshinError, match=f"127.0.0.1 port {server.port}: "):
        Server(Collector(), server.port, "127.0.0.1")


def test_a_run_serves_its_metrics_as_it_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Samples] = []

    def look(result: ToolResult) -> None:
        seen.append(scrape(port)[0])

    with served("127.0.0.1:0") as told:
        port = int(capsys.readouterr().err.strip().removesuffix("/metrics").rpartition(":")[2])
        task = replace(ANSWER, solution=("echo right > answer", "cat answer"))
        play_taskset([task], rollouts=2, engine="dummy", jobs=1, on_call=look, on_stats=told)
        seen.append(scrape(port)[0])
    calls = [samples["bunshin_calls_total", (("task", ANSWER.name),)] for samples in seen]
    assert calls == sorted(calls)
    assert (calls[0], calls[-1]) == (1, len(calls) - 1)


def test_a_run_takes_a_port() -> None:
    with pytest.raises(TaskError, match="--metrics needs a port, or an address and a port, not 'x'"), served("x"):
        pass
