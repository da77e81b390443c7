"""AsyncRollout: one rollout of a pool, for one task of an event loop at a time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from bunshin_gym.actions import Invalid
from bunshin_gym.episode import Episode, Transition
from bunshin_gym.errors import RolloutOver
from bunshin_gym.task import Task
from bunshin_gym.tools import ToolCall, ToolResult

if TYPE_CHECKING:
    from bunshin_gym.pool import RolloutPool

__all__ = ["AsyncRollout"]

Action = str | ToolCall | Mapping[str, Any]


class AsyncRollout:
    """A rollout: what it shows, and its steps. Made by `RolloutPool.rollout` and begun by `async with`.

    `observation` is the task's instruction first and what the last step showed then; `reward`, `terminated`,
    `truncated` and `info` are the last step's, `result` is its ToolResult (None where it made no call). They stay
    readable when the rollout is over.

    Cancelling a step (`asyncio.timeout`, a task group that fails) ends the rollout: what runs in its workspace is
    ended, the workspace is closed, the rollout is truncated with `failure_kind` "cancelled", and no other is disturbed.
    """

    def __init__(self, pool: RolloutPool, task: Task, episode: Episode | None = None) -> None:
        self.pool = pool
        self.task = task
        self.observation = ""
        self.reward = 0.0
        self.terminated = False
        self.truncated = False
        self.info: dict[str, Any] = {}
        self.result: ToolResult | None = None
        self._episode = episode
        self._busy = ""
        self._closed = False
        self._ending: asyncio.Future[None] | None = None

    @property
    def done(self) -> bool:
        """Whether it is over."""
        return self.terminated or self.truncated

    async def step(self, action: Action) -> str:
        """One move: text as for the environment; or a tool call as a ToolCall, `{"tool", "args"}`, or OpenAI's
        `{"name", "arguments"}`. Returns the observation. What goes wrong inside is in it and in `info["failure_kind"]`.

        Raises RolloutOver once the rollout is over, and PoolClosed.
        """
        episode = self._running("step")
        move = self._spelled(action)
        self._busy = "step"
        try:
            transition = await self.pool._step(episode, move, lambda: episode.step(move))
            self.result = episode.result
        except TimeoutError:
            self._episode, transition = episode.abandon(action)
            self.result = None
        except BaseException as error:
            self.end("cancelled" if isinstance(error, asyncio.CancelledError) else "internal_error")
            raise
        finally:
            self._busy = ""
        self._take(transition)
        return self.observation

    async def hint(self, text: str) -> None:
        """What the policy has written of its next action so far, for a speculator that can make use of it."""
        episode = self._running("take a hint")
        await self.pool._run(self.pool._quick, lambda: episode.hint(text))

    async def fork(self, n: int) -> list[AsyncRollout]:
        """n rollouts in this one's state, begun already, independent of it and of each other.

        Close each, or use it in `async with`. Raises ForkError where the workspace holds something unforkable.
        """
        if n < 0:
            raise ValueError(f"cannot fork {n} rollouts: give 0 or more")
        episode = self._running("fork")
        self._busy = "fork"
        try:
            children = await self.pool._run(self.pool._calls, lambda: episode.fork(n), _close_all)
        finally:
            self._busy = ""
        siblings = [self._sibling(child) for child in children]
        if self.pool._closed:
            for sibling in siblings:
                sibling.end("closed")
            self.pool._check("fork")
        return siblings

    async def close(self) -> None:
        """End the rollout and close its workspace. Idempotent; a rollout that is over keeps what it shows."""
        self.end("closed")
        if self._ending is not None:
            await asyncio.wait([self._ending])

    async def __aenter__(self) -> Self:
        self.pool._check("begin a rollout")
        if self._closed:
            raise RolloutOver("cannot begin the rollout: it was closed")
        if self._episode is None:
            self._episode = await self.pool._open(self.task)
            if self.pool._closed:
                self._episode.close()
                self.pool._check("begin a rollout")
            self.observation, self.info = self.task.instruction, {"task": self.task.name}
        self.pool._rollouts.add(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    def end(self, why: str) -> None:
        """Begin to close the workspace, without waiting; a rollout that is not over is truncated because of `why`."""
        if self._closed:
            return
        self._closed = True
        self.pool._rollouts.discard(self)
        if self._episode is not None:
            self._ending = self.pool._close_later(self._episode.close)
            if not self.done:
                self.truncated = True
                self.info = self.info | {"failure_kind": why}

    def _take(self, transition: Transition) -> None:
        if self._closed:  # closed while the step was on its way: what it gave is its end
            transition = transition._replace(truncated=not transition.terminated)
        self.observation, self.reward, self.terminated, self.truncated, self.info = transition

    def _sibling(self, episode: Episode) -> AsyncRollout:
        child = AsyncRollout(self.pool, self.task, episode)
        child.observation, child.info, child.result = self.observation, dict(self.info), self.result
        self.pool._rollouts.add(child)
        return child

    def _running(self, step: str) -> Episode:
        self.pool._check(step)
        if self._closed:
            raise RolloutOver(f"cannot {step}: the rollout is closed")
        if self._episode is None:
            raise RolloutOver(f"cannot {step}: the rollout is not begun; use it in `async with`")
        if self.done:
            raise RolloutOver(f"cannot {step}: the rollout is over")
        if self._busy:
            raise RuntimeError(f"cannot {step}: another {self._busy} of this rollout is under way")
        return self._episode

    def _spelled(self, action: object) -> str | Invalid:
        """The action in the pool's own spelling; what a policy got wrong is for the policy to read."""
        if isinstance(action, str):
            return action
        name: Any
        args: Any
        if isinstance(action, ToolCall):
            name, args = action.name, dict(action.args)
        elif not isinstance(action, Mapping):
            return Invalid(f"an action is text or a tool call, not {type(action).__name__}")
        elif "name" in action:
            name, args = action["name"], action.get("arguments", {})
        else:
            name, args = action.get("tool"), action.get("args", {})
        if isinstance(args, str):
            try:
                args = json.loads(args or "{}")
            except (ValueError, RecursionError) as error:
                return Invalid(f"the arguments of {name!r} are not JSON: {error}")
        if not isinstance(name, str) or not isinstance(args, Mapping):
            return Invalid('a tool call is {"tool": name, "args": {...}} or {"name": name, "arguments": {...}}')
        if self.pool.interface.name != "shell":
            try:
                return json.dumps({"tool": name, "args": dict(args)})
            except (TypeError, ValueError) as error:
                return Invalid(f"the arguments of {name!r} are not plain values: {error}")
        if name == "submit":
            return "submit"
        if name != "shell" or not isinstance(args.get("command"), str):
            return Invalid(
                f"there is no tool {name!r} with such arguments; there are shell, with a command, and submit"
            )
        return str(args["command"])


def _close_all(episodes: list[Episode]) -> None:
    for episode in episodes:
        episode.close()
