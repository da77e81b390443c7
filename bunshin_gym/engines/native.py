"""The native engine: workspaces in namespaces, forked by libbunshin. Needs no root.

It owns what lies on disk: a state directory with a skeleton, and layers. A workspace writes into one upper layer; a
snapshot seals that layer, and the workspace goes on as a fork with a fresh one above it. Layers are counted, and
removed when neither a workspace nor a snapshot uses them.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from bunshin_gym._native import Context, NativeFailure, features, load
from bunshin_gym._native import handles as _codes
from bunshin_gym.engines import native_saved
from bunshin_gym.engines.native_features import describe
from bunshin_gym.engines.native_layers import Layer, LayerPool
from bunshin_gym.engines.native_plan import make_plan
from bunshin_gym.engines.native_results import public_error
from bunshin_gym.engines.native_stores import StoreCounts
from bunshin_gym.engines.native_workspace import NativeSnapshot, NativeWorkspace
from bunshin_gym.errors import EngineUnavailable, ImageError, WorkspaceLost
from bunshin_gym.image import Image, MountPoint, state_parent
from bunshin_gym.tools.call import ExitReason, ToolCall
from bunshin_gym.workspace import WorkspaceSpec

__all__ = ["NativeEngine", "NativeSnapshot", "NativeWorkspace"]

_PREFIX = "bunshin-state-"


class NativeEngine:
    """Makes native workspaces. One a process; starts its keeper with the first workspace."""

    name = "native"

    def __init__(self) -> None:
        try:
            load()
        except OSError as error:
            raise EngineUnavailable(str(error)) from error
        self.stores = StoreCounts()
        self._lock = threading.Lock()
        self._context: Context | None = None
        self._owner = 0
        self._state = Path()

    def features(self) -> dict[str, Any]:
        """What this machine can do. Values are strings, as `bunshin doctor` shows them."""
        return describe(features())

    # -- the keeper

    def context(self) -> Context:
        """The keeper of this process; a forked copy of a process gets one of its own."""
        with self._lock:
            if self._context is None or self._owner != os.getpid():
                parent = state_parent()
                self._state = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
                self._state.chmod(0o755)
                for name in ("layers", "root"):
                    (self._state / name).mkdir()
                try:
                    self._context = Context(str(self._state))
                except NativeFailure as failure:
                    shutil.rmtree(self._state, ignore_errors=True)
                    raise EngineUnavailable(f"cannot run workspaces here: {failure.message}") from failure
                _remove_stale(parent, self._context)
                self._layers = LayerPool(self._context, self._state / "layers")
                self._owner = os.getpid()
                atexit.register(self.shutdown)
            return self._context

    @property
    def disk(self) -> Path:
        """Where what need not be in memory goes: where the layers lie."""
        return self._state

    def shutdown(self) -> None:
        """End every workspace of this process. Runs by itself at exit."""
        with self._lock:
            context, self._context = self._context, None
        if context is not None and self._owner == os.getpid():
            self._layers.close()
            context.close()

    # -- workspaces

    def create(self, spec: WorkspaceSpec, building: bool = False) -> NativeWorkspace:
        try:
            return self._create(spec, building)
        except WorkspaceLost:
            if not self._retire_dead_keeper():
                raise
            return self._create(spec, building)

    def _retire_dead_keeper(self) -> bool:
        """Whether somebody has killed the keeper, and so its workspaces; the next workspace starts a new one."""
        try:
            self.context().flush()
        except NativeFailure as failure:
            if failure.code == _codes.LOST:
                self.shutdown()
                return True
        return False

    def _create(self, spec: WorkspaceSpec, building: bool) -> NativeWorkspace:
        context = self.context()
        image = spec.image if spec.image is not None else Image.host()
        try:
            mounts = image.mounts(self._state)
            if building:
                mounts = tuple(point.for_building() for point in mounts)
        except OSError as error:
            raise ImageError(f"cannot prepare {image}: {error}") from error
        upper = self.new_layer(mounts)
        try:
            handle = context.create(self.plan(spec, mounts, upper, ()))
        except NativeFailure as failure:
            upper.drop()
            raise public_error(failure) from failure
        return NativeWorkspace(self, spec, mounts, handle, upper, ())

    def plan(self, spec: WorkspaceSpec, mounts: Sequence[MountPoint], upper: Layer, sealed: Sequence[Layer]) -> bytes:
        """The records from which pid 1 of a workspace on these layers sets itself up."""
        return make_plan(spec, mounts, upper, sealed, self._state / "root")

    def new_layer(self, mounts: Sequence[MountPoint], work: bool = True) -> Layer:
        """A layer with a part for each mount that can be written; `work`: to be mounted as an upper layer."""
        keys = tuple(point.key for point in mounts if point.writable)
        return self._layers.make(keys) if work else Layer(self.context(), self._layers.new_path(), keys, work)

    def load_snapshot(self, directory: Path, image: Image | None) -> NativeSnapshot:
        """What `NativeSnapshot.save` wrote. Raises WorkspaceError."""
        source, handle, layer = native_saved.load(self, directory, image)
        return NativeSnapshot(source, handle, (layer,))

    @property
    def state(self) -> Path:
        """Where layers and skeletons lie; there is one once there is a keeper."""
        return self._state

    # -- images

    def build_layer(
        self, base: Image, commands: Sequence[str], network: Literal["none", "host"], timeout: float, target: Path
    ) -> None:
        """Run commands in a workspace on `base` and move its upper layer to `target`."""
        spec = WorkspaceSpec(image=base, network=network, capabilities="container", pids_limit=None, cwd="/")
        workspace = self.create(spec, building=True)
        try:
            for command in commands:
                result = workspace.call(ToolCall("exec", {"argv": ["bash", "-c", command]}), timeout)
                if result.exit_reason is not ExitReason.EXITED or result.exit_code != 0:
                    raise ImageError(
                        f"cannot build an image: `{command[:200]}` ended with {result.exit_reason.value} "
                        f"{result.exit_code}: {result.output[-2000:]}"
                    )
            upper = workspace.upper.hold()
        finally:
            workspace.close()
        making = target.with_suffix(".making")
        shutil.rmtree(making, ignore_errors=True)
        try:
            making.mkdir()
            for point in workspace.mounts:
                if point.writable:
                    shutil.move(upper.path / point.key, making / point.key)
            making.rename(target)
        finally:
            upper.drop()


def _remove_stale(parent: Path, context: Context) -> None:
    """Remove what a keeper that was itself killed left behind: state directories of ours that nobody has locked.

    The new keeper does it: an overlay's work directory has no permissions, and files may belong to mapped users.
    """
    for path in parent.glob(f"{_PREFIX}*"):
        try:
            if path.stat().st_uid != os.geteuid():
                continue
            with open(path / "lock") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                context.remove(str(path))
        except (OSError, NativeFailure):
            continue  # in use, or just being made
