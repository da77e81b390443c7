"""RolloutPool: rollouts of an asyncio program, on the dummy engine."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from unit.tasks import ANSWER, BROKEN, COUNT, TASKS

from bunshin_gym import ExitReason, PoolClosed, RolloutOver, RolloutPool, Task, TaskError, ToolCall
from bunshin_gym.engines.dummy import DummyEngine


def run(play: Callable[[RolloutPool], Awaitable[Any]], **kwargs: Any) -> Any:
    async def main() -> Any:
        async with RolloutPool(**({"engine": "dummy", "taskset": TASKS} | kwargs)) as pool:
            return await asyncio.wait_for(play(pool), 120)

    return asyncio.run(main())


def test_a_rollout_from_the_instruction_to_the_reward() -> None:
    async def play(pool: RolloutPool) -> None:
        async with pool.rollout("answer") as r:
            assert (r.observation, r.info, r.done, r.result) == (ANSWER.instruction, {"task": "answer"}, False, None)
            assert await r.step("cat answer; nosuch") == r.observation
            assert "wrong\n" in r.observation
            assert r.result is not None and r.result.exit_code == 127 == r.info["exit_code"]
            await r.step("echo right > answer")
            assert await r.step("submit") == "submitted"
            assert (r.reward, r.terminated, r.truncated, r.done, r.result) == (1.0, True, False, True, None)
            with pytest.raises(RolloutOver, match="over"):
                await r.step("pwd")
        assert r.reward == 1.0, "what it showed stays"
        async with pool.rollout(COUNT.name) as r:
            for _ in range(3):
                await r.step("pwd")
            assert (r.truncated, r.terminated) == (True, False)
        assert pool.stats.calls == 5

    run(play)


def test_tasks_by_name_by_object_and_by_seed() -> None:
    other = Task("other", "Else.")

    async def play(pool: RolloutPool) -> None:
        names = [pool.rollout(seed=seed).task.name for seed in range(20)]
        assert names == [pool.rollout(seed=seed).task.name for seed in range(20)]
        assert set(names) == set(TASKS.names)
        async with pool.rollout(other) as r:
            assert r.observation == "Else."
        assert pool.rollout("other").task is other
        with pytest.raises(ValueError, match="another task 'other'"):
            pool.rollout(Task("other", "No."))
        with pytest.raises(TaskError):
            pool.rollout("nope")

    run(play)


@pytest.mark.parametrize("interface", ["shell", "tools"])
def test_tool_calls_in_their_spellings(interface: str) -> None:
    async def play(pool: RolloutPool) -> None:
        assert pool.tools[0]["function"]["name"] == "shell"
        for action in (
            ToolCall("shell", {"command": "echo hi"}),
            {"tool": "shell", "args": {"command": "echo hi"}},
            {"name": "shell", "arguments": '{"command": "echo hi"}'},
            {"name": "shell", "arguments": {"command": "echo hi"}},
        ):
            async with pool.rollout("count") as r:
                assert await r.step(action) == "hi\n"
        for wrong in (
            {"name": "shell", "arguments": "{"},
            {"name": "nope", "arguments": "{}"},
            {"name": "shell", "arguments": "{}"},
            {"tool": "shell", "args": {"command": b"x"}},
            {},
            7,
        ):
            async with pool.rollout("count") as r:
                assert (await r.step(wrong)).startswith("[invalid action: ")  # type: ignore[arg-type]
                assert (r.info["call_valid"], r.done) == (False, False)
        async with pool.rollout("answer") as r:
            await r.step({"name": "submit", "arguments": ""})
            assert (r.terminated, r.reward) == (True, 0.25)

    run(play, interface=interface)


def test_rollouts_are_apart_and_share_what_they_did() -> None:
    async def one(pool: RolloutPool, i: int) -> str:
        async with pool.rollout("answer") as r:
            await r.step("cat answer")
            await r.step(f"echo {i} >> answer")
            return await r.step("cat answer")

    async def play(pool: RolloutPool) -> None:
        shown = await asyncio.gather(*(one(pool, i) for i in range(40)))
        assert shown == [f"wrong\n{i}\n" for i in range(40)]
        assert (pool.stats.prepared, pool.stats.misses) == (1, 81)
        assert pool.load.rollouts == 0

    run(play)


def test_no_thread_is_held_while_policies_think() -> None:
    async def play(pool: RolloutPool) -> None:
        before = threading.active_count()
        everyone = asyncio.Barrier(301)

        async def one(i: int) -> None:
            async with pool.rollout("count") as r:
                await r.step(f"echo {i}")
                await everyone.wait()
                await everyone.wait()

        crowd = asyncio.gather(*(one(i) for i in range(300)))
        await everyone.wait()
        assert (pool.load.rollouts, pool.load.running, pool.load.waiting) == (300, 0, 0)
        assert threading.active_count() - before <= 4 + 2 + 4
        await everyone.wait()
        await crowd

    run(play, max_concurrent=4)


def test_calls_have_their_turns_and_hits_do_not_queue_up() -> None:
    gate = threading.Event()
    running: list[int] = []
    most = [0]

    def wait(workspace: Any) -> float:
        running.append(1)
        most[0] = max(most[0], len(running))
        assert gate.wait(60)
        running.pop()
        return 1.0

    task = Task("t", "do", verifier=wait)

    async def play(pool: RolloutPool) -> None:
        async with pool.rollout(task) as known:
            await known.step("echo known")
        entered = [await pool.rollout(task).__aenter__() for _ in range(9)]
        for i, r in enumerate(entered):
            await r.step(f"echo {i} > file")
        ends = [asyncio.create_task(r.step("submit")) for r in entered]
        while len(running) < 3:
            await asyncio.sleep(0.01)
        async with pool.rollout(task) as quick:
            assert await quick.step("echo known") == "known\n"
        assert pool.load == type(pool.load)(9, 3, 6)
        gate.set()
        await asyncio.gather(*ends)
        assert {r.reward for r in entered} == {1.0}
        assert most[0] <= 3

    run(play, max_concurrent=3)


def test_those_that_ask_the_same_wait_without_a_turn() -> None:
    async def play(pool: RolloutPool) -> None:
        rollouts = [await pool.rollout("count").__aenter__() for _ in range(20)]
        same = [asyncio.create_task(r.step("sleep 0.5; echo same")) for r in rollouts]
        async with pool.rollout("count") as other:
            assert await other.step("echo other") == "other\n"
        assert not any(task.done() for task in same), "the other one did not have to wait for all of these"
        assert await asyncio.gather(*same) == ["same\n"] * 20
        assert pool.stats.misses == 2

    run(play, max_concurrent=2)


def test_what_cannot_be_shared_runs_side_by_side() -> None:
    barrier = threading.Barrier(3)

    def meet(workspace: Any) -> float:
        barrier.wait(30)
        return 1.0

    async def play(pool: RolloutPool) -> None:
        rollouts = [await pool.rollout().__aenter__() for _ in range(3)]
        await asyncio.gather(*(r.step("submit") for r in rollouts))
        assert [r.reward for r in rollouts] == [1.0] * 3

    run(play, max_concurrent=3, cache=False, taskset=[Task("t", "do", verifier=meet)])


# -- cancelling, time


@pytest.mark.parametrize("how", ["cancel", "timeout"])
def test_cancelling_a_step_ends_its_rollout_only(how: str, dummy: DummyEngine) -> None:
    async def play(pool: RolloutPool) -> None:
        live = dummy.live
        async with pool.rollout("count") as r, pool.rollout("count") as other:
            await other.step("X=1")
            if how == "cancel":
                step = asyncio.create_task(r.step("sleep 60"))
                await asyncio.sleep(0.1)
                step.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await step
            else:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await r.step("sleep 60")
            assert (r.truncated, r.info["failure_kind"]) == (True, "cancelled")
            with pytest.raises(RolloutOver):
                await r.step("pwd")
            assert await other.step("echo $X") == "1\n"
        while pool.load.running:
            await asyncio.sleep(0.01)
        assert dummy.live <= live + 1, "nothing is left of either, but for the task's template"

    start = time.monotonic()
    run(play)
    assert time.monotonic() - start < 50, "the call ended with its rollout"


def test_a_cancelled_leader_leaves_the_call_to_those_who_wait() -> None:
    async def play(pool: RolloutPool) -> None:
        a, b, c = [await pool.rollout("count").__aenter__() for _ in range(3)]
        steps = [asyncio.create_task(r.step("sleep 1; echo done")) for r in (a, b, c)]
        await asyncio.sleep(0.2)
        steps[0].cancel()
        assert await asyncio.gather(*steps[1:]) == ["done\n"] * 2

    run(play)


def test_cancelled_before_its_turn() -> None:
    async def play(pool: RolloutPool) -> None:
        slow = await pool.rollout("count").__aenter__()
        queued = await pool.rollout("answer").__aenter__()
        first = asyncio.create_task(slow.step("sleep 1; echo first"))
        await asyncio.sleep(0.1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(queued.step("echo never > answer"), 0.1)
        assert await first == "first\n"
        assert pool.stats.calls == 1, "it was never begun"

    run(play, max_concurrent=1)


def test_cancelled_while_it_begins(dummy: DummyEngine) -> None:
    gate = threading.Event()

    def image() -> Any:
        assert gate.wait(60)

    async def play(pool: RolloutPool) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1), pool.rollout():
                raise AssertionError("it cannot begin")
        gate.set()
        async with pool.rollout() as r:
            assert await r.step("echo on") == "on\n"

    run(play, taskset=[Task("slow", "do", image=image)])


def test_a_step_timeout_counts_from_its_turn() -> None:
    async def play(pool: RolloutPool) -> None:
        rollouts = [await pool.rollout("count").__aenter__() for _ in range(5)]
        shown = await asyncio.gather(*(r.step(f"sleep 0.3; echo {i}") for i, r in enumerate(rollouts)))
        assert shown == [f"{i}\n" for i in range(5)], "waiting for a turn is not counted"
        assert "did not finish in time" in await rollouts[0].step("sleep 60")
        assert (rollouts[0].truncated, rollouts[0].info["failure_kind"]) == (True, "timed_out")
        assert await rollouts[1].step("echo on") == "on\n"

    run(play, max_concurrent=1, step_timeout=1.0)


# -- forks, hints, faults


def test_forks_are_independent() -> None:
    async def play(pool: RolloutPool) -> None:
        async with pool.rollout("answer") as r:
            await r.step("X=1; echo right > answer")
            a, b = await r.fork(2)
            await r.hint("I will now run")
            assert (a.observation, a.done, b.task) == (r.observation, False, r.task)
            async with a, b:
                await a.step("X=2; echo wrong > answer")
                assert [await x.step("echo $X") for x in (r, a, b)] == ["1\n", "2\n", "1\n"]
                for x in (r, a, b):
                    await x.step("submit")
            assert (r.reward, a.reward, b.reward) == (1.0, 0.25, 1.0)
            assert await pool.rollout("answer").__aenter__() is not None
        with pytest.raises(ValueError):
            await r.fork(-1)

    run(play)


def test_a_lost_workspace_and_a_broken_verifier_are_results() -> None:
    async def play(pool: RolloutPool) -> None:
        async with pool.rollout(COUNT) as r, pool.rollout(BROKEN) as s:
            await r.step("bunshin-fault lose")
            assert (r.truncated, r.info["failure_kind"]) == (True, "workspace_lost")
            assert r.result is not None and r.result.exit_reason is ExitReason.WORKSPACE_LOST
            await s.step("submit")
            assert (s.terminated, s.reward, s.info["failure_kind"]) == (True, 0.0, "verifier_failed")

    run(play)


def test_a_fault_of_the_program_ends_one_rollout_and_is_raised() -> None:
    class Bug(BaseException):
        pass

    def broken(workspace: Any) -> float:
        raise Bug

    task = Task("bug", "do", verifier=broken)

    async def play(pool: RolloutPool) -> None:
        async with pool.rollout(task) as r, pool.rollout("count") as other:
            with pytest.raises(Bug):
                await r.step("submit")
            assert (r.truncated, r.info["failure_kind"]) == (True, "internal_error")
            assert await other.step("echo on") == "on\n"

    run(play)


def test_a_task_that_cannot_be_prepared_says_so_to_each() -> None:
    task = Task("bad", "do", setup=("false",))

    async def play(pool: RolloutPool) -> None:
        async def one() -> None:
            async with pool.rollout(task):
                pass

        errors = await asyncio.gather(*(one() for _ in range(5)), return_exceptions=True)
        assert [type(error) for error in errors] == [TaskError] * 5
        async with pool.rollout("count") as r:
            assert await r.step("echo on") == "on\n"

    run(play)


# -- the pool itself


def test_close_is_bounded_and_ends_what_runs(dummy: DummyEngine) -> None:
    async def main() -> None:
        pool = RolloutPool(taskset=TASKS, engine="dummy", max_concurrent=2)
        await pool.__aenter__()
        rollouts = [await pool.rollout("count").__aenter__() for _ in range(6)]
        steps = [asyncio.create_task(r.step(f"sleep 6{i}")) for i, r in enumerate(rollouts)]
        await asyncio.sleep(0.1)
        start = time.monotonic()
        await pool.close(timeout=5)
        await pool.close()
        await asyncio.wait(steps, timeout=30)
        assert time.monotonic() - start < 30
        assert all(r.truncated for r in rollouts)
        with pytest.raises(PoolClosed):
            await rollouts[0].step("pwd")
        with pytest.raises(PoolClosed):
            pool.rollout("count")
        assert all(step.done() for step in steps)

    asyncio.run(main())


def test_a_verifier_that_hangs_does_not_hold_up_close() -> None:
    gate = threading.Event()

    async def main() -> None:
        def stuck(workspace: Any) -> float:
            gate.wait(60)
            return 0.0

        pool = RolloutPool(Task("t", "do", verifier=stuck), engine="dummy")
        async with pool:
            r = await pool.rollout().__aenter__()
            step = asyncio.create_task(r.step("submit"))
            await asyncio.sleep(0.1)
            start = time.monotonic()
            await pool.close(timeout=0.5)
            assert time.monotonic() - start < 20
            step.cancel()

    asyncio.run(main())
    gate.set()


def test_one_pool_is_for_one_loop() -> None:
    pool = RolloutPool(engine="dummy")
    with pytest.raises(PoolClosed, match="not open"):
        pool.rollout()

    async def open_it() -> None:
        await pool.__aenter__()
        with pytest.raises(PoolClosed, match="opened before"):
            await pool.__aenter__()
        errors: list[BaseException] = []

        async def elsewhere() -> None:
            try:
                pool.rollout()
            except PoolClosed as error:
                errors.append(error)

        thread = threading.Thread(target=lambda: asyncio.run(elsewhere()))
        thread.start()
        thread.join()
        assert "event loop" in str(errors[0])
        await pool.close()

    asyncio.run(open_it())


def test_misuse_is_told() -> None:
    for wrong in ({"max_concurrent": 0}, {"interface": "x"}, {"group_size": 0}, {"step_timeout": 0.0}):
        with pytest.raises(ValueError):
            RolloutPool(engine="dummy", **wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="RolloutPool got an unexpected keyword argument 'nope'"):
        RolloutPool(engine="dummy", nope=1)

    async def play(pool: RolloutPool) -> None:
        r = pool.rollout("count")
        with pytest.raises(RolloutOver, match="not begun"):
            await r.step("pwd")
        async with r:
            step = asyncio.create_task(r.step("sleep 0.2"))
            await asyncio.sleep(0.05)
            with pytest.raises(RuntimeError, match="under way"):
                await r.step("pwd")
            await step
        await r.close()
        with pytest.raises(RolloutOver, match="closed"):
            await r.step("pwd")
        with pytest.raises(RolloutOver):
            await r.__aenter__()

    run(play)
