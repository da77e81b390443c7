"""A group: scripted rollouts of one task, played side by side, as a training step runs those of a policy.

A script is a fixed sequence of tool calls. Each rollout runs in a thread of its own; what it got is kept in order. A
rollout that cannot go on is data, not an error: it says why, and the others play on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from bunshin_gym.branch import Branch, grow
from bunshin_gym.errors import BunshinError
from bunshin_gym.executor import Executor
from bunshin_gym.recall import Stamper
from bunshin_gym.rollout import Rollout
from bunshin_gym.tools import ExitReason, ToolCall, ToolResult
from bunshin_gym.tree import Node, Step
from bunshin_gym.workspace import Workspace

__all__ = ["Group", "Played", "play", "repeat"]

Script = Sequence[ToolCall]
OnCall = Callable[[ToolResult], None]


@dataclass
class Played:
    """What a rollout got. `reward` is None where nobody judged; `failure` says why it ended early ("": it did not)."""

    name: str
    results: list[ToolResult] = field(default_factory=list)
    reward: float | None = None
    failure: str = ""
    seconds: float = 0.0
    waited: list[float] = field(default_factory=list)  # seconds each result was waited for, in the order of results


def repeat(scripts: Mapping[str, Script], n: int) -> dict[str, Script]:
    """n scripts, the given ones over and over, each with a name of its own."""
    given = list(scripts.items())
    return {f"{given[i % len(given)][0]} #{i + 1}": given[i % len(given)][1] for i in range(n)}


class Group:
    """The rollouts of one task, by number. A context manager: leaving it lets go of every workspace.

    `thinking`: for each script the seconds before each of its calls, where that is not the same for all.
    """

    def __init__(
        self,
        executor: Executor,
        name: str,
        prepare: Callable[[], Workspace],
        scripts: Mapping[str, Script],
        *,
        timeout: float,
        verifier: Callable[[Workspace], float] | None = None,
        stamp: Stamper | None = None,
        thinking: Sequence[Sequence[float]] | None = None,
    ) -> None:
        self.executor = executor
        self.name = name
        self.played = [Played(script) for script in scripts]
        self._prepare = prepare
        self._scripts = list(scripts.values())
        self._timeout = timeout
        self._verifier = verifier
        self._stamp = stamp
        self._thinking = thinking
        self._rollouts: dict[int, Rollout] = {}
        self._lock = threading.Lock()
        self._closed = False

    def __len__(self) -> int:
        return len(self._scripts)

    def open(self, index: int) -> Rollout:
        """The rollout with that number, begun where it is not yet. Raises as the executor and the task do."""
        with self._lock:
            rollout = self._rollouts.get(index)
        if rollout is not None:
            return rollout
        # Where nothing is shared, nothing is waited for either: each rollout is a root of its own.
        shared = self.executor.share or self.executor.cache
        rollout = self.executor.open(self.name if shared else (self.name, index), self._prepare, self._stamp)
        with self._lock:
            self._rollouts[index] = rollout
            closed = self._closed
        if closed:
            rollout.close()
        return rollout

    def begin(self, index: int) -> None:
        """`open`, for its effect; where it fails, that rollout has failed and the others have not."""
        try:
            self.open(index)
        except BunshinError as error:
            self.played[index].failure = f"{type(error).__name__}: {error}"

    def play(self, index: int, think: float, stop: threading.Event, on_call: OnCall | None = None) -> None:
        """Play one rollout to its end, thinking `think` seconds before each call."""
        played = self.played[index]
        if played.failure:
            return
        start = time.perf_counter()
        try:
            rollout = self.open(index)
            for number, call in enumerate(self._scripts[index]):
                if stop.wait(think if self._thinking is None else self._thinking[index][number]):
                    played.failure = "interrupted"
                    return
                asked = time.perf_counter()
                result = self.executor.run(rollout, call, self._timeout)
                played.waited.append(time.perf_counter() - asked)
                played.results.append(result)
                if on_call is not None:
                    on_call(result)
                if result.exit_reason is ExitReason.WORKSPACE_LOST:
                    played.failure = result.notice or "the workspace was lost"
                    return
            if self._verifier is not None:
                played.reward = self.executor.verify(rollout, self._verifier)
        except BunshinError as error:
            played.failure = f"{type(error).__name__}: {error}"
        finally:
            played.seconds = time.perf_counter() - start

    def finish(self, index: int) -> None:
        """Let go of one rollout's workspace."""
        with self._lock:
            rollout = self._rollouts.get(index)
        if rollout is not None:
            self.executor.close_rollout(rollout)

    def numbers(self) -> dict[int, int]:
        """The numbers that events have for the rollouts that were begun, by their own in the group."""
        with self._lock:
            return {index: rollout.number for index, rollout in self._rollouts.items()}

    def trails(self) -> list[list[Step]]:
        """The calls each rollout was answered, in order."""
        with self._lock:
            return [list(self._rollouts[i].trail) if i in self._rollouts else [] for i in range(len(self))]

    def tree(self) -> Branch:
        """Which calls the rollouts shared, and where they parted. While the executor is open."""
        with self._lock:
            rollouts = [(self.played[index].name, rollout) for index, rollout in sorted(self._rollouts.items())]
        shared: dict[Node, list[tuple[str, list[tuple[Step, str]]]]] = {}
        for name, rollout in rollouts:
            shared.setdefault(rollout.node.root, []).append((name, rollout.way))
        roots = [grow(self.name, root, below) for root, below in shared.items()]
        if len(roots) == 1:
            return roots[0]
        return Branch(self.name, rollouts=len(rollouts), children=[child for root in roots for child in root.children])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of every workspace; a call that is running returns. The executor is closed by its owner."""
        with self._lock:
            self._closed = True
            rollouts = list(self._rollouts.values())
        for rollout in rollouts:
            self.executor.close_rollout(rollout)


def play(
    groups: Sequence[Group],
    *,
    jobs: int | None = None,
    think: float = 0.0,
    on_call: OnCall | None = None,
    before: Callable[[], None] | None = None,
) -> None:
    """Play all rollouts of some groups, `jobs` at a time (None: all at once). The caller closes the groups.

    All at once is how a training step has them: the workspaces of the whole batch live until its end. With fewer jobs
    a workspace goes when its rollout ends. With `before`, every rollout is begun first, then `before()` is called, then
    they play: the start-up is kept apart. An interrupt ends every running call.
    """
    every = [(group, index) for group in groups for index in range(len(group))]
    stop = threading.Event()

    def one(group: Group, index: int) -> None:
        if not stop.is_set():
            group.play(index, think, stop, on_call)
        if jobs is not None:
            group.finish(index)

    with ThreadPoolExecutor(jobs or max(1, len(every)), thread_name_prefix="bunshin-rollout") as pool:
        try:
            if before is not None:
                for opened in [pool.submit(group.begin, index) for group, index in every]:
                    opened.result()
                before()
            for future in [pool.submit(one, group, index) for group, index in every]:
                future.result()
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            for group in groups:
                group.close()  # running calls return at once
            raise
