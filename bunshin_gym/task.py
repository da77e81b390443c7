"""Task and Taskset: what is to be done, how to tell whether it was, and a loader of those that come along."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, overload

from bunshin_gym.errors import TaskError
from bunshin_gym.habits import Habits
from bunshin_gym.stamp import Stamp, stamp_of
from bunshin_gym.tools import ToolCall
from bunshin_gym.workspace import Workspace, WorkspaceSpec

if TYPE_CHECKING:
    from bunshin_gym.image import Image

__all__ = ["PLAYGROUND", "Task", "Taskset"]

# A step of a scripted policy: a command line, or a JSON tool call for Tools-v0.
Script = tuple[str, ...]

_SETUP_TIMEOUT = 600.0
_SPEC_FIELDS = {f.name for f in fields(WorkspaceSpec)}


@dataclass(frozen=True, eq=False)
class Task:
    """One task.

    The workspace starts from `image` (or what a function returns, called when it is first needed), gets `files` (path
    to content) and then the `setup` calls (a text is a command of the shell). The episode ends when the policy submits
    or after `step_limit` steps; then `verifier` looks at the workspace and returns a reward in [0, 1]. Without one the
    reward is 0. At the step limit the workspace is frozen first (`Workspace.freeze`): what its processes would do later
    does not count. `live_verifier` lets them run, for a verifier that talks to a service; after a submission they
    always do. `call_timeout` (seconds) bounds each call. `spec` overrides fields of the WorkspaceSpec. `solution` and
    `wrong` are scripted action sequences that reach reward 1 and do not; `scripts` holds further ones by name; `habits`
    is a policy that makes any number of them. `version`: of what a saved call tree cannot see, such as what a set-up
    command fetches; another one makes the answers saved before it stale.
    """

    name: str
    instruction: str
    image: Image | Callable[[], Image] | None = None
    setup: tuple[str | ToolCall, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    verifier: Callable[[Workspace], float] | None = None
    live_verifier: bool = False
    step_limit: int = 32
    call_timeout: float = 30.0
    spec: Mapping[str, Any] = field(default_factory=dict)
    solution: Script = ()
    wrong: Script = ()
    scripts: Mapping[str, Script] = field(default_factory=dict)
    habits: Habits | None = None
    version: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a task needs a name")
        if self.step_limit < 1:
            raise ValueError(f"task {self.name!r}: step_limit must be at least 1, not {self.step_limit}")
        unknown = set(self.spec) - _SPEC_FIELDS
        if unknown:
            raise ValueError(f"task {self.name!r}: spec has no field {', '.join(map(repr, sorted(unknown)))}")

    def workspace_spec(self, base: WorkspaceSpec) -> WorkspaceSpec:
        """The spec of this task's workspaces: its own fields win over `base`, but for the image, where `base` wins."""
        spec = replace(base, **{"call_timeout": self.call_timeout, **self.spec})
        if base.image is None and self.image is not None:
            spec = replace(spec, image=self.image() if callable(self.image) else self.image)
        return spec

    def stamp(self, workspace: Workspace) -> Stamp | None:
        """What answers in workspaces prepared like this one depend on; None where that cannot be told."""
        content = (self.name, self.version, dict(self.files), [_setup_call(step).key() for step in self.setup])
        return stamp_of(workspace.spec, content, self.verifier)

    def prepare(self, base: WorkspaceSpec, first: Callable[[Workspace], None] | None = None) -> Workspace:
        """A workspace in which the task can begin; `first` is called with it before anything is put into it.

        Raises TaskError where the set-up fails, and as Workspace and `first` do.
        """
        workspace = Workspace(self.workspace_spec(base))
        try:
            if first is not None:
                first(workspace)
            for path, content in self.files.items():
                workspace.write_file(path, content)
            for step in self.setup:
                result = workspace.call(_setup_call(step), timeout=_SETUP_TIMEOUT)
                if not result.ok:
                    told = repr(step) if isinstance(step, str) else str(step)
                    raise TaskError(
                        f"cannot prepare task {self.name!r}: {told} ended with {result.exit_reason.value} "
                        f"{result.exit_code}: {result.output.strip()[-500:]}"
                    )
        except BaseException:
            workspace.close()
            raise
        return workspace


def _setup_call(step: str | ToolCall) -> ToolCall:
    return step if isinstance(step, ToolCall) else ToolCall("shell", {"command": step})


PLAYGROUND = Task("playground", "An empty workspace. Try what you like, and submit when you are done.")


class Taskset(Sequence[Task]):
    """Tasks in order, each with a name of its own; found by index or by name."""

    def __init__(self, tasks: Iterable[Task], name: str = "") -> None:
        self.name = name
        self._tasks = tuple(tasks)
        self._by_name = {task.name: task for task in self._tasks}
        if not self._tasks:
            raise TaskError(f"taskset {name!r} is empty")
        if len(self._by_name) != len(self._tasks):
            raise TaskError(f"taskset {name!r} has two tasks of one name")

    @classmethod
    def load(cls, name: str = "basic") -> Taskset:
        """The shipped tasks: "basic" is those that a shell is enough for, "desktop" those for a desktop; the name of a
        task is that one alone. Raises TaskError.
        """
        if name == PLAYGROUND.name:
            return cls([PLAYGROUND], name)
        sets = _shipped()
        every = [task for tasks in sets.values() for task in tasks]
        tasks = sets[name] if name in sets else [task for task in every if task.name == name]
        if not tasks:
            known = ", ".join([*sets, PLAYGROUND.name, *(task.name for task in every)])
            raise TaskError(f"there is no task or taskset {name!r}; there are {known}")
        return cls(tasks, name)

    @property
    def names(self) -> list[str]:
        return list(self._by_name)

    @overload
    def __getitem__(self, index: int | str) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> Taskset: ...
    def __getitem__(self, index: int | str | slice) -> Task | Taskset:
        if isinstance(index, slice):
            return Taskset(self._tasks[index], self.name)
        if isinstance(index, str):
            if index not in self._by_name:
                raise TaskError(f"there is no task {index!r} here; there are {', '.join(self._by_name)}")
            return self._by_name[index]
        return self._tasks[index]

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks)

    def __repr__(self) -> str:
        return f"Taskset({', '.join(self._by_name)})"


def _shipped() -> dict[str, list[Task]]:
    """The tasks below `bunshin_gym.envs` by taskset: a module has one TASK, or TASKS that are a set of its name."""
    try:
        package = importlib.import_module("bunshin_gym.envs")
    except ModuleNotFoundError as error:
        raise TaskError(f"the shipped tasks are not installed: {error}") from None
    sets: dict[str, list[Task]] = {"basic": []}
    for found in sorted(pkgutil.iter_modules(package.__path__), key=lambda m: m.name):
        module = importlib.import_module(f"bunshin_gym.envs.{found.name}")
        task = getattr(module, "TASK", None)
        if isinstance(task, Task):
            sets["basic"].append(task)
        if hasattr(module, "TASKS"):
            sets[found.name] = list(module.TASKS)
    return sets
