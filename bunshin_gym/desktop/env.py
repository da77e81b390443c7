"""DesktopEnv: an environment whose state is a live desktop, seen as a picture and used with mouse, keyboard and shell.

It is a WorkspaceEnv with another sense: an observation is the screen once it has settled after the action. What a tool
said (a shell's output, what was wrong with an action) and at first the instruction is text, in `info["text"]`, or part
of the observation with `observation="both"`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from bunshin_gym.actions import SUBMIT, Interface, Move, Submit
from bunshin_gym.desktop.display import Desktop
from bunshin_gym.desktop.tasks import DESKTOP_PLAYGROUND
from bunshin_gym.env import EnvState, WorkspaceEnv
from bunshin_gym.episode import MAX_OBSERVATION, Episode, Progress, Transition
from bunshin_gym.errors import InvalidToolCall
from bunshin_gym.executor import Executor
from bunshin_gym.rollout import Rollout
from bunshin_gym.spaces import UnicodeText
from bunshin_gym.task import Task
from bunshin_gym.tools import COMPUTER, DESKTOP_TOOLS, TOOLS, ToolCall
from bunshin_gym.workspace import Workspace

__all__ = ["DESKTOP_INTERFACE", "DesktopEnv"]

Picture = NDArray[np.uint8]

_PLAIN = ("shell", "read_file", "write_file")
_TOOLS = {**DESKTOP_TOOLS, COMPUTER.name: COMPUTER, **{name: TOOLS[name] for name in _PLAIN}}
_FORM = 'an action is a JSON object such as {"tool": "click", "args": {"x": 10, "y": 20}}'


def _parse(action: str) -> Move:
    """An action in one of three spellings: ours, OpenAI's (`type` and arguments), Anthropic's (`action` and more)."""
    try:
        value = json.loads(action)
    except (ValueError, RecursionError) as error:
        raise InvalidToolCall(f"{_FORM}; this is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidToolCall(f"{_FORM}; this is none")
    if isinstance(value.get("tool"), str):
        name, args = value["tool"], value.get("args", {})
        extra = sorted(set(value) - {"tool", "args"})
        if extra:
            raise InvalidToolCall(f"{_FORM}; it has no entry {extra[0]!r}")
    elif isinstance(value.get("type"), str):
        name, args = value["type"], {key: item for key, item in value.items() if key != "type"}
    elif "action" in value:
        name, args = COMPUTER.name, value
    else:
        raise InvalidToolCall(f"{_FORM}; this one names no tool")
    if name == SUBMIT.name:
        SUBMIT.validate(args)
        return Submit()
    if name not in _TOOLS:
        raise InvalidToolCall(f"there is no tool {name!r}; there are {', '.join([*_TOOLS, SUBMIT.name])}")
    _TOOLS[name].validate(args)
    return ToolCall(name, args)


def _as_json(tool: str, **args: Any) -> str:
    return json.dumps({"tool": tool, "args": args})


DESKTOP_INTERFACE = Interface(
    "desktop",
    _parse,
    (*_TOOLS.values(), SUBMIT),
    (
        _as_json("move", x=40, y=40),
        _as_json("click", x=60, y=60),
        _as_json("type", text="echo hello\n"),
        _as_json("keypress", keys=["ENTER"]),
        _as_json("screenshot"),
        _as_json("shell", command="echo hello"),
        json.dumps({"action": "mouse_move", "coordinate": [50, 30]}),
    ),
)


@dataclass(frozen=True, eq=False)
class DesktopState(EnvState):
    """The state, and how its screen looked."""

    picture: Picture


class DesktopEpisode(Episode):
    """An episode that looks at the screen after each call."""

    picture: Picture | None = None

    def _call(self, call: ToolCall) -> Transition:
        transition = super()._call(call)
        if not transition.truncated:
            self.look(settle=call.name not in DESKTOP_TOOLS and call.name != COMPUTER.name)
        return transition

    def look(self, settle: bool = False) -> Picture:
        """The screen of the rollout's workspace, which is forked where there is none yet."""
        desktop = Desktop(self.executor.materialise(self.rollout))
        if settle:
            desktop.settle()
        self.picture = desktop.screenshot()
        return self.picture


class DesktopEnv(WorkspaceEnv):
    """`bunshin/Desktop-v0`: an action is a JSON object that names a tool of the desktop; `submit` ends the episode.

    Args:
        size: the screen's width and height in pixels.
        observation: "screen" (a Box: uint8, height x width x 3), or "both": a Dict of that `screen` and `text`.
        task, taskset, engine, share, render_mode, step_timeout, spec: as for `WorkspaceEnv`. A desktop lives on by
            itself, so no call is answered from a cache.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array", "ansi"], "render_fps": 4}  # type: ignore[misc]
    interface: ClassVar[Interface] = DESKTOP_INTERFACE
    playground: ClassVar[Task] = DESKTOP_PLAYGROUND

    def __init__(
        self,
        task: Any = None,
        taskset: Any = None,
        engine: str = "native",
        share: bool = True,
        render_mode: Literal["ansi", "rgb_array"] | None = None,
        step_timeout: float | None = None,
        size: tuple[int, int] = (1024, 768),
        observation: Literal["screen", "both"] = "screen",
        *,
        cache: bool = False,
        _executor: Executor | None = None,
        **spec: Any,
    ) -> None:
        if cache:
            raise ValueError("a desktop lives on by itself: its calls cannot be answered from a cache")
        if observation not in ("screen", "both"):
            raise ValueError(f"observation must be 'screen' or 'both', not {observation!r}")
        self.size = (int(size[0]), int(size[1]))
        self.observation = observation
        super().__init__(task, taskset, engine, False, share, render_mode, step_timeout, _executor=_executor, **spec)
        self._kwargs |= {"size": self.size, "observation": observation}
        width, height = self.size
        self.screen_space = spaces.Box(0, 255, (height, width, 3), np.uint8)
        text = UnicodeText(MAX_OBSERVATION)
        self.observation_space = (
            self.screen_space if observation == "screen" else spaces.Dict({"screen": self.screen_space, "text": text})
        )
        self._picture: Picture = np.zeros((height, width, 3), dtype=np.uint8)

    # -- the Gymnasium interface

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode. `options={"task": name}` picks the task; otherwise it is drawn.

        Raises EngineUnavailable, naming the Debian packages, where programs of the desktop are missing; and as
        `WorkspaceEnv.reset`.
        """
        text, info = super().reset(seed=seed, options=options)
        episode = self._running("look")
        assert isinstance(episode, DesktopEpisode)
        self._picture = episode.look(settle=True)
        return self._observe(text), info | {"text": text}

    def step(self, action: str) -> Transition:
        """One move. As `WorkspaceEnv.step`; the text is in `info["text"]`."""
        return self.see(super().step(action))

    def give_up(self, action: object) -> Transition:
        """End the episode because the step that is under way in another thread is overdue."""
        return self.see(super().give_up(action))

    def render(self) -> str | Picture | None:
        """The screen ("rgb_array"), as it was observed last; or the transcript ("ansi")."""
        if self.render_mode == "rgb_array":
            return self._picture.copy()
        return super().render()

    # -- states

    def clone_state(self) -> DesktopState:
        """The present state, desktop included, to `restore_state` any number of times. Raises ForkError."""
        state = super().clone_state()
        return DesktopState(**vars(state), picture=self._picture)

    def restore_state(self, state: EnvState) -> None:
        """Go back to a state of this environment or of a fork of it. Raises ValueError for others, and closed ones."""
        super().restore_state(state)
        if isinstance(state, DesktopState):
            self._picture = state.picture

    def desktop(self) -> Desktop:
        """The live desktop of the episode, to look at. Raises ResetNeeded before `reset`, WorkspaceLost at its end."""
        episode = self._running("look")
        return Desktop(episode.executor.materialise(episode.rollout))

    def see(self, transition: Transition) -> Transition:
        """The transition as this environment shows it: with the screen in place of the text, once."""
        if transition.info.get("text") is not None:
            return transition
        if isinstance(self._episode, DesktopEpisode) and self._episode.picture is not None:
            self._picture = self._episode.picture
        text = transition.observation
        return transition._replace(observation=self._observe(text), info=transition.info | {"text": text})

    # -- helpers

    def _prepare(self, task: Task) -> Workspace:
        return task.prepare(self.workspace_spec, first=self._start)

    def _start(self, workspace: Workspace) -> None:
        Desktop.start(workspace, self.size)

    def _make_episode(self, task: Task, rollout: Rollout, progress: Progress | None = None) -> Episode:
        return DesktopEpisode(
            self._executor, self.interface, task, rollout, progress, transcribe=self.render_mode is not None
        )

    def _observe(self, text: str) -> Any:
        picture = self._picture.copy()
        return picture if self.observation == "screen" else {"screen": picture, "text": text}
