"""Many rollouts at once: each makes its workspace its own, and must find it so again.

All open alike; then each writes a file, a shell variable and a column of a table of its own, waits until all the others
have done so too, and asks for them back. What it is told is compared with what it wrote: that a workspace was forked
anew in between must not show, nor that it was parked because of a memory budget.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from bunshin_gym.bench.meter import Meter
from bunshin_gym.bench.rollout.modes import OURS
from bunshin_gym.errors import BunshinError
from bunshin_gym.rollout import Rollout
from bunshin_gym.task import Task
from bunshin_gym.tools import ToolCall
from bunshin_gym.workspace import Workspace, WorkspaceSpec

__all__ = ["Many", "play_many"]

_TIMEOUT = 300.0


@dataclass
class Many:
    """Bytes, seconds. `own`: what the rollouts' workspaces would take if each had everything for itself.

    `peak` is measured (PSS and page stores, see `meter`), `counted` what the ledger counted at most.
    """

    rollouts: int
    budget: int | None = None
    opened: int = 0
    answered: int = 0
    one: int = 0
    peak: int = 0
    integral: float = 0.0
    seconds: float = 0.0
    all_at_once: float = 0.0
    wrong: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    stats: dict[str, Any] = field(default_factory=dict)

    @property
    def counted(self) -> int:
        return int(self.stats.get("memory_peak", 0))

    @property
    def own(self) -> int:
        return self.rollouts * self.one

    def as_dict(self) -> dict[str, Any]:
        return vars(self) | {"own": self.own, "counted": self.counted}


def script(number: int) -> tuple[list[ToolCall], ToolCall, str]:
    """What one rollout does: its calls, how it asks afterwards, and what it must then be told."""

    def shell(command: str) -> ToolCall:
        return ToolCall("shell", {"command": command})

    calls = [
        shell("ls -a"),
        shell(f"echo rollout {number} > mine && head -c 262144 /dev/zero | tr '\\0' x > large"),
        ToolCall("python", {"code": f"table['mine'] = {number}\nlen(table)"}),
        shell(f"mine={number}"),
    ]
    again = shell("echo $mine $(cat mine) $(wc -c < large)")
    return calls, again, f"{number} rollout {number} 262144"


def play_many(
    task: Task,
    rollouts: int,
    *,
    engine: str = "native",
    jobs: int = 16,
    memory_budget: str | int | None = None,
    on_part: Callable[[str, int], None] = lambda name, total: None,
    on_step: Callable[[], None] = lambda: None,
) -> Many:
    """Open `rollouts` rollouts of the task and keep them all, `jobs` of them at work at a time.

    Raises as the task's set-up does.
    """
    executor = OURS.executor(rollouts, memory_budget=memory_budget)
    spec = WorkspaceSpec(engine=engine, separate_stderr=False)
    found = Many(rollouts, executor.ledger.budget)
    meter = Meter(rest=9)
    lock = threading.Lock()
    opened: dict[int, Rollout] = {}

    def prepare() -> Workspace:
        workspace = task.prepare(spec)
        found.one = workspace.memory().pss  # before it is sealed, and its memory everybody's
        return workspace

    try:
        executor.close_rollout(executor.open(task.name, prepare))
        begin = time.perf_counter()
        with meter, ThreadPoolExecutor(jobs, thread_name_prefix="bunshin-many") as pool:

            def settle(number: int) -> None:
                try:
                    rollout = executor.open(task.name, prepare)
                    with lock:
                        opened[number] = rollout
                    for call in script(number)[0]:
                        executor.run(rollout, call, _TIMEOUT)
                except BunshinError as error:
                    found.failures.append(f"rollout {number}: {error}")
                on_step()

            def ask(number: int) -> None:
                _, again, expected = script(number)
                code = ToolCall("python", {"code": "int(table.mine.sum()) // len(table)"})
                try:
                    text = executor.run(opened[number], again, _TIMEOUT).output.strip()
                    told = executor.run(opened[number], code, _TIMEOUT).output.strip()
                except BunshinError as error:
                    found.failures.append(f"rollout {number}: {error}")
                else:
                    if (text, told) == (expected, str(number)):
                        found.answered += 1
                    else:
                        found.wrong.append(f"rollout {number}: {text!r} and {told!r}")
                on_step()

            try:
                on_part(f"{rollouts} rollouts begin", rollouts)
                list(pool.map(settle, range(rollouts)))
                found.opened = len(opened)
                found.all_at_once = time.perf_counter() - begin
                on_part(f"{rollouts} rollouts are asked", rollouts)
                list(pool.map(ask, sorted(opened)))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for rollout in list(opened.values()):
                    executor.close_rollout(rollout)
                raise
            found.seconds = time.perf_counter() - begin
    finally:
        for rollout in opened.values():
            executor.close_rollout(rollout)
        executor.close()
    found.peak, found.integral, found.stats = meter.peak, meter.integral, executor.stats.as_dict()
    return found
