"""RolloutPool: hundreds of rollouts at a time for programs on asyncio, such as a loop around an LLM server.

    async with bg.RolloutPool(taskset="basic") as pool:
        async with pool.rollout("log_hunt", seed=1) as r:
            while not r.done:
                await r.step(await policy(r.observation, pool.tools))
        print(r.reward)

A rollout that waits for its policy holds no thread, and no workspace before its first call that has to be run. Calls
run in a bounded crew of threads, `max_concurrent` at a time, in the order they were asked for: a rollout has one call
at a time, so that each has its turn. A call that the tree knows does not queue up behind those that run, and of
rollouts that ask the same in the same state at the same moment, one takes a turn and the others wait without one.

A pool belongs to the event loop in which it was opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import numpy as np

from bunshin_gym.actions import SHELL_INTERFACE, TOOLS_INTERFACE
from bunshin_gym.async_rollout import AsyncRollout
from bunshin_gym.env import make_executor, make_spec, tasks_of
from bunshin_gym.episode import Episode
from bunshin_gym.errors import PoolClosed
from bunshin_gym.rollout import Rollout
from bunshin_gym.stats import Stats
from bunshin_gym.task import Task, Taskset
from bunshin_gym.worker import Crew, Worker

__all__ = ["Load", "RolloutPool"]

T = TypeVar("T")

_INTERFACES = {"shell": SHELL_INTERFACE, "tools": TOOLS_INTERFACE}
_QUICK = 2  # threads for what touches no process: hits, invalid actions, forks of places
_CLOSERS = 4

_log = logging.getLogger("bunshin_gym")


@dataclass(frozen=True)
class Load:
    """What a pool is doing: rollouts that are open, and calls that run or wait for their turn."""

    rollouts: int
    running: int
    waiting: int


class RolloutPool:
    """Rollouts of some tasks, all on one executor. An asynchronous context manager; constructing it starts nothing.

    Args:
        task, taskset, engine, cache, share, tree, options: as for `WorkspaceEnv`.
        interface: "shell" (an action is bash source) or "tools" (a JSON object that names a tool).
        group_size: how many rollouts of a task are expected: what is worth a snapshot of its own depends on it.
        max_concurrent: how many calls run at a time. None: twice the processors, at least 4.
        step_timeout: seconds a step may run before its rollout is truncated, not counting the time it waits for its
            turn. None: only the task's own limit on each call holds.
    """

    def __init__(
        self,
        task: str | Task | None = None,
        taskset: str | Taskset | Iterable[Task] | None = None,
        interface: Literal["shell", "tools"] = "shell",
        engine: str = "native",
        cache: bool = True,
        share: bool = True,
        group_size: int = 8,
        max_concurrent: int | None = None,
        step_timeout: float | None = None,
        **options: Any,
    ) -> None:
        if interface not in _INTERFACES:
            raise ValueError(f"interface must be one of {list(_INTERFACES)}, not {interface!r}")
        if max_concurrent is not None and max_concurrent < 1:
            raise ValueError(f"max_concurrent must be at least 1, not {max_concurrent}")
        if group_size < 1:
            raise ValueError(f"group_size must be at least 1, not {group_size}")
        if step_timeout is not None and not step_timeout > 0:
            raise ValueError(f"step_timeout must be a positive number of seconds or None, not {step_timeout!r}")
        self.tasks = tasks_of(task, taskset)
        self.interface = _INTERFACES[interface]
        self.step_timeout = step_timeout
        self.max_concurrent = max(4, 2 * (os.cpu_count() or 1)) if max_concurrent is None else max_concurrent
        self._executor, rest = make_executor(cache, share, group_size, options)
        self._spec = make_spec(type(self).__name__, engine, rest)
        self._calls = Crew(self.max_concurrent, "bunshin-call")
        self._quick = Crew(_QUICK, "bunshin-hit")
        self._closers = Crew(_CLOSERS, "bunshin-close")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._stopped = False
        self._rollouts: set[AsyncRollout] = set()
        self._closing: set[asyncio.Future[None]] = set()
        self._known: dict[str, Task] = {task.name: task for task in self.tasks}
        self._begun: set[str] = set()  # tasks whose workspace is prepared
        self._gates: dict[str, asyncio.Lock] = {}  # one prepares it, without the others holding a thread
        self._asked: dict[Hashable, asyncio.Future[Any]] = {}  # the calls that run, by state and call

    # -- rollouts

    def rollout(self, task: str | Task | None = None, *, seed: int | None = None) -> AsyncRollout:
        """A rollout, begun by `async with`. `task`: one of the taskset by name, or any Task; None: drawn by `seed`.

        Raises TaskError for an unknown one, PoolClosed where the pool is not open in this event loop.
        """
        self._check("begin a rollout")
        if task is None:
            chosen = self.tasks[int(np.random.default_rng(seed).integers(len(self.tasks)))]
        elif isinstance(task, Task):
            chosen = task
        else:
            chosen = self._known[task] if task in self._known else self.tasks[task]
        if self._known.setdefault(chosen.name, chosen) is not chosen:
            raise ValueError(f"there is another task {chosen.name!r} in this pool: give this one a name of its own")
        return AsyncRollout(self, chosen)

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools as OpenAI function schemas."""
        return self.interface.openai()

    @property
    def stats(self) -> Stats:
        """What was saved, and what it cost, over all rollouts."""
        return self._executor.stats

    @property
    def load(self) -> Load:
        """What the pool is doing at this moment."""
        busy = self._calls.unfinished
        return Load(len(self._rollouts), min(busy, self.max_concurrent), max(0, busy - self.max_concurrent))

    async def save_tree(self, path: str | os.PathLike[str] | None = None) -> None:
        """Write the call tree to a file, for the option `tree` of another pool; None: to the one it was given.

        Also while rollouts go on. Raises TreeFileError, PoolClosed.
        """
        self._check("save the call tree")
        await self._run(self._quick, lambda: self._executor.save(path))

    # -- the beginning and the end

    async def __aenter__(self) -> Self:
        if self._loop is not None or self._closed:
            raise PoolClosed("cannot open the pool: it was opened before; make a new one")
        self._loop = asyncio.get_running_loop()
        self._executor.acquire()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self, timeout: float = 10.0) -> None:
        """Close every rollout (a step that runs ends as one whose workspace is lost), and the executor. Idempotent.

        Waits at most `timeout` seconds and leaves the rest to the threads.
        """
        if self._closed:
            return
        if self._loop is not None:
            self._check("close the pool")
        self._closed = True
        for rollout in list(self._rollouts):
            rollout.end("closed")
        done = True
        if self._closing:
            done = not (await asyncio.wait(self._closing, timeout=timeout))[1]
        if self._loop is not None:
            last = asyncio.wrap_future(self._closers.submit(self._executor.release))
            done = bool((await asyncio.wait([last], timeout=max(1.0, timeout)))[0]) and done
        self._stopped = True
        for crew in (self._calls, self._quick, self._closers):
            crew.stop()
        if not done:
            _log.warning("close() did not wait any longer for every workspace to end")

    # -- for the rollouts of this pool

    def _check(self, step: str) -> None:
        """Raise PoolClosed unless the pool is open, in the running event loop."""
        if self._closed:
            raise PoolClosed(f"cannot {step}: the pool is closed")
        if self._loop is None:
            raise PoolClosed(f"cannot {step}: the pool is not open; use it in `async with`")
        try:
            running: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is not self._loop:
            raise PoolClosed(
                f"cannot {step}: the pool belongs to the event loop it was opened in, and this is "
                f"{'another one' if running else 'none'}; make a pool for each loop"
            )

    async def _open(self, task: Task) -> Episode:
        """An episode at the task's beginning. Of those that begin the first one prepares the task's workspace."""
        if task.name in self._begun or not self._executor.share:
            return await self._run(self._quick if self._executor.share else self._calls, lambda: self._make(task), _end)
        async with self._gates.setdefault(task.name, asyncio.Lock()):
            begun = task.name in self._begun
            episode = await self._run(self._quick if begun else self._calls, lambda: self._make(task), _end)
            self._begun.add(task.name)
        return episode

    def _make(self, task: Task) -> Episode:
        rollout = self._executor.open(task.name, lambda: task.prepare(self._spec), task.stamp)
        return self._episode(task, rollout)

    def _episode(self, task: Task, rollout: Rollout) -> Episode:
        return Episode(self._executor, self.interface, task, rollout)

    async def _step(self, episode: Episode, action: object, job: Callable[[], T]) -> T:
        """Run a step of an episode, in the crew that fits. Raises TimeoutError once it has run for `step_timeout`."""
        if episode.is_known(action):
            return await self._run(self._quick, job, timeout=self.step_timeout)
        if not episode.is_shared(action):
            return await self._run(self._calls, job, timeout=self.step_timeout)
        node = episode.rollout.node
        key = (getattr(node, "state", node), action, episode.task.call_timeout)
        asked = self._asked.get(key)
        if asked is not None:
            # Wait without a thread for the one that runs. Whether it helped or not: then it is our own turn.
            await asyncio.wait([asked])
            return await self._run(
                self._quick if episode.is_known(action) else self._calls, job, timeout=self.step_timeout
            )
        self._asked[key] = turn = asyncio.get_running_loop().create_future()
        try:
            return await self._run(self._calls, job, timeout=self.step_timeout)
        finally:
            if self._asked.get(key) is turn:
                del self._asked[key]
            turn.set_result(None)

    async def _run(
        self,
        crew: Crew,
        job: Callable[[], T],
        orphan: Callable[[T], None] | None = None,
        timeout: float | None = None,
    ) -> T:
        """Run `job` in a crew. What nobody waits for any more when it is there goes to `orphan`."""
        if self._closed:
            raise PoolClosed("cannot go on: the pool is closed")
        loop = asyncio.get_running_loop()
        started = asyncio.Event()

        def run() -> T:
            if timeout is not None:
                with contextlib.suppress(RuntimeError):  # the loop was closed
                    loop.call_soon_threadsafe(started.set)
            return job()

        source = crew.submit(run)
        future = asyncio.wrap_future(source)
        try:
            if timeout is not None:
                await started.wait()
                if not (await asyncio.wait([future], timeout=timeout))[0]:
                    raise TimeoutError
            return await future
        except (asyncio.CancelledError, TimeoutError):
            future.cancel()
            if orphan is not None:
                source.add_done_callback(lambda source: _pass_on(source, orphan))
            raise

    def _close_later(self, close: Callable[[], None]) -> asyncio.Future[None]:
        """Close something beside everything else; the pool's own close waits for it."""
        crew = Worker("bunshin-close") if self._stopped else self._closers
        future = asyncio.wrap_future(crew.submit(close))
        self._closing.add(future)
        future.add_done_callback(self._closing.discard)
        return future


def _end(episode: Episode) -> None:
    episode.close()


def _pass_on(source: Future[T], to: Callable[[T], None]) -> None:
    if not source.cancelled() and source.exception() is None:
        to(source.result())
