"""One episode: a task, a rollout, and the rules by which it goes on and ends. The environments are made of these.

The episode ends
- *terminated* when the policy submits: the verifier looks at the workspace, and what it says is the reward;
- *truncated* at the task's step limit: the verifier looks, too, at a workspace that stands still (unless the task has a
  `live_verifier`): what still ran when the time was up does not count;
- *truncated* with reward 0 and a `failure_kind` when it cannot go on: `workspace_lost`, `workspace_error` (none could
  be had), `invalid_calls` (8 in a row), `timed_out` (a step passed its deadline), `reset_failed` (an automatic one).

A verifier that fails gives reward 0 and the `failure_kind` `verifier_failed`.

`info` holds only what is the same each time the same things are done.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from gymnasium.error import ResetNeeded

from bunshin_gym.actions import Interface, Invalid, Submit
from bunshin_gym.errors import BunshinError, TaskError, WorkspaceLost
from bunshin_gym.executor import Executor, Place
from bunshin_gym.rollout import Rollout
from bunshin_gym.task import Task
from bunshin_gym.tools import ExitReason, ToolCall, ToolResult

__all__ = ["MAX_OBSERVATION", "Episode", "Progress", "Transition"]

MAX_OBSERVATION = 1 << 17
MAX_INVALID = 8
_TRANSCRIPT = 200  # entries kept for rendering

_log = logging.getLogger("bunshin_gym")


class Transition(NamedTuple):
    """What a step gives, in Gymnasium's order."""

    observation: Any  # text, until an environment puts a picture in its place
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


@dataclass(frozen=True)
class Progress:
    """Where an episode stands, but for its workspace: copied into states and forks."""

    steps: int = 0
    invalid: int = 0
    over: bool = False
    transcript: tuple[tuple[str, str], ...] = ()


class Episode:
    """One episode in progress. Used by one thread at a time, but for `abandon`."""

    def __init__(
        self,
        executor: Executor,
        interface: Interface,
        task: Task,
        rollout: Rollout,
        progress: Progress | None = None,
        *,
        transcribe: bool = False,
    ) -> None:
        self.executor = executor
        self.interface = interface
        self.task = task
        self.rollout = rollout
        self.transcribe = transcribe
        self.result: ToolResult | None = None  # of the last step, if it was a call
        self.progress = progress or Progress(transcript=(("", task.instruction),) if transcribe else ())

    # -- one step

    def step(self, action: object) -> Transition:
        """Make the move the action stands for. Raises ResetNeeded once the episode is over, and nothing else."""
        if self.progress.over:
            raise ResetNeeded("cannot step: the episode is over; call reset() first")
        self.progress = replace(self.progress, steps=self.progress.steps + 1)
        move = self.interface.parse(action)
        self.result = None
        try:
            if isinstance(move, Submit):
                transition = self._judge(_transition("submitted", exit_reason="submitted"), terminated=True)
            elif isinstance(move, Invalid):
                transition = self._refuse(move)
            else:
                transition = self._call(move)
            if not _ended(transition) and self.progress.steps >= self.task.step_limit:
                transition = self._judge(transition, truncated=True)
        except WorkspaceLost as error:
            transition = self._fail("workspace_lost", error)
        except (BunshinError, OSError) as error:
            transition = self._fail("workspace_error", error)
        return self._record(action, transition)

    def _call(self, call: ToolCall) -> Transition:
        self.progress = replace(self.progress, invalid=0)
        result = self.result = self.executor.run(self.rollout, call, self.task.call_timeout)
        if result.exit_reason is ExitReason.WORKSPACE_LOST:
            return self._fail("workspace_lost", None, result)
        return _transition(
            observe(result),
            exit_code=result.exit_code if result.exit_code is not None else -1,
            exit_reason=result.exit_reason.value,
            output_truncated=result.truncated,
        )

    def _refuse(self, move: Invalid) -> Transition:
        self.executor.stats.add(invalid=1)
        self.progress = replace(self.progress, invalid=self.progress.invalid + 1)
        transition = _transition(
            f"[invalid action: {move.reason}]", exit_code=-1, exit_reason="not_run", call_valid=False
        )
        if self.progress.invalid < MAX_INVALID:
            return transition
        text = f"{transition.observation}\n[{MAX_INVALID} invalid actions in a row: the episode ends]"
        info = transition.info | {"failure_kind": "invalid_calls"}
        return transition._replace(observation=text, truncated=True, info=info)

    def _judge(self, transition: Transition, *, terminated: bool = False, truncated: bool = False) -> Transition:
        """The end: what the verifier says is the reward. Nothing of a call that timed out runs any more by now."""
        reward, failure = 0.0, ""
        if self.task.verifier is not None:
            try:
                freeze = truncated and not self.task.live_verifier
                reward = self.executor.verify(self.rollout, self.task.verifier, freeze=freeze)
            except TaskError as error:
                _log.warning("task %r: %s", self.task.name, error)
                failure = "verifier_failed"
        info = transition.info | {"failure_kind": failure}
        return transition._replace(reward=reward, terminated=terminated, truncated=truncated, info=info)

    def _fail(self, kind: str, error: Exception | None, result: ToolResult | None = None) -> Transition:
        if error is not None:
            _log.warning("an episode of task %r ends early (%s): %s", self.task.name, kind, error)
        text = _failure_text(kind)
        reason = ExitReason.WORKSPACE_LOST.value if kind == "workspace_lost" else "not_run"
        text = f"{result.output}\n{text}" if result is not None and result.output else text
        return _transition(text, exit_code=-1, exit_reason=reason, failure_kind=kind)._replace(truncated=True)

    def _record(self, action: object, transition: Transition) -> Transition:
        transition = transition._replace(observation=_fit(transition.observation))
        self.progress = replace(self.progress, over=_ended(transition), transcript=self._transcript(action, transition))
        if self.progress.over:
            self.rollout.drop()
        return transition

    def _transcript(self, action: object, transition: Transition) -> tuple[tuple[str, str], ...]:
        if not self.transcribe:
            return ()
        return (*self.progress.transcript, (str(action), transition.observation))[-_TRANSCRIPT:]

    def is_known(self, action: object) -> bool:
        """Whether a step with this action would give what it gives without running anything, as things stand."""
        move = self.interface.parse(action)
        if isinstance(move, ToolCall):
            last = self.progress.steps + 1 >= self.task.step_limit
            return not last and self.executor.knows(self.rollout, move, self.task.call_timeout)
        return isinstance(move, Invalid)

    def is_shared(self, action: object) -> bool:
        """Whether siblings in this state that do the same may be given what this one gets."""
        move = self.interface.parse(action)
        call = move if isinstance(move, ToolCall) else None
        return self.executor.shares(self.rollout, call, self.task.call_timeout)

    # -- states

    def keep(self) -> Place:
        """The place where the episode stands."""
        return self.executor.keep(self.rollout, live=not self.progress.over)

    def fork(self, n: int) -> list[Episode]:
        """n episodes that stand where this one does, independent of it. Raises ForkError."""
        place = self.keep()
        try:
            return [
                type(self)(
                    self.executor,
                    self.interface,
                    self.task,
                    self.executor.resume(place),
                    self.progress,
                    transcribe=self.transcribe,
                )
                for _ in range(n)
            ]
        finally:
            place.release()

    def hint(self, text: str) -> None:
        """What the policy has written of its next action so far."""
        self.executor.hint(self.rollout, text)

    # -- the end

    def close(self) -> None:
        """Let go of the workspace."""
        self.executor.close_rollout(self.rollout)

    def abandon(self, action: object) -> tuple[Episode, Transition]:
        """Give up on a step that passed its deadline, from another thread: what it would give is this instead.

        Returns an episode that is over, to go on with. The late step keeps this one, at which nobody looks any more,
        and finds its rollout closed.
        """
        self.executor.stats.add(overdue=1)
        transition = _transition(
            _failure_text("timed_out"), exit_code=-1, exit_reason="timeout", failure_kind="timed_out"
        )
        transition = transition._replace(truncated=True, info=transition.info | {"timed_out": True})
        # Closing takes as long as the engine needs to end what runs: not the time of whoever waits for this step.
        threading.Thread(target=self.close, name="bunshin-abandon", daemon=True).start()
        progress = replace(self.progress, over=True, transcript=self._transcript(action, transition))
        rest = type(self)(
            self.executor, self.interface, self.task, Rollout(self.rollout.node), progress, transcribe=self.transcribe
        )
        return rest, transition


def observe(result: ToolResult) -> str:
    """What the policy sees of a result: the output, and what else it has to know, in brackets."""
    lines = []
    if result.notice:
        lines.append(f"[{result.notice}]")
    if result.exit_reason is ExitReason.OUT_OF_MEMORY:
        lines.append("[out of memory]")
    if result.exit_reason is ExitReason.SIGNALED or (result.exit_reason is ExitReason.EXITED and result.exit_code):
        lines.append(f"[exit code {result.exit_code}]")
    gap = "\n" if result.output and not result.output.endswith("\n") and lines else ""
    return result.output + gap + "\n".join(lines)


def _transition(
    text: str,
    *,
    exit_code: int = 0,
    exit_reason: str,
    output_truncated: bool = False,
    failure_kind: str = "",
    call_valid: bool = True,
) -> Transition:
    info: dict[str, Any] = {
        "exit_code": exit_code,
        "exit_reason": exit_reason,
        "output_truncated": output_truncated,
        "failure_kind": failure_kind,
        "call_valid": call_valid,
        "timed_out": False,
    }
    return Transition(text, 0.0, False, False, info)


def _ended(transition: Transition) -> bool:
    return transition.terminated or transition.truncated


def _failure_text(kind: str) -> str:
    return {
        "workspace_lost": "[the workspace was lost: the episode ends]",
        "workspace_error": "[no workspace could be had: the episode ends]",
        "timed_out": "[the step did not finish in time: the episode ends]",
    }[kind]


def _fit(text: str) -> str:
    if len(text) <= MAX_OBSERVATION:
        return text
    half = MAX_OBSERVATION // 2 - 64
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"
