"""The engines by name. Each is imported when it is first asked for, and made once a process."""

from __future__ import annotations

import importlib
import threading
from typing import TYPE_CHECKING, Any

from bunshin_gym.errors import EngineUnavailable

if TYPE_CHECKING:
    from bunshin_gym.engines.base import Engine

__all__ = ["features", "get", "names"]

_ENTRY_POINTS = {
    "native": "bunshin_gym.engines.native:NativeEngine",
    "dummy": "bunshin_gym.engines.dummy:DummyEngine",
}
_loaded: dict[str, Engine] = {}
_lock = threading.Lock()


def names() -> list[str]:
    """The names of all engines, whether or not they work here."""
    return list(_ENTRY_POINTS)


def get(name: str) -> Engine:
    """The engine called `name`. Raises EngineUnavailable, which says why and what there is instead."""
    if name not in _ENTRY_POINTS:
        raise EngineUnavailable(f"there is no engine {name!r}; there are {', '.join(_ENTRY_POINTS)}")
    with _lock:
        if name not in _loaded:
            module, attribute = _ENTRY_POINTS[name].split(":")
            try:
                engine: Engine = getattr(importlib.import_module(module), attribute)()
            except (ImportError, OSError, EngineUnavailable) as error:
                others = ", ".join(repr(other) for other in _ENTRY_POINTS if other != name)
                raise EngineUnavailable(f"engine {name!r} cannot be loaded: {error}; there is also {others}") from error
            _loaded[name] = engine
        return _loaded[name]


def features() -> dict[str, Any]:
    """What this machine can do, probed by trying.

    `engines` maps each engine to "" or to the reason why it cannot be loaded; the rest is what the native engine found
    out, and is missing where that cannot be loaded.
    """
    state: dict[str, str] = {}
    found: dict[str, Any] = {}
    for name in _ENTRY_POINTS:
        try:
            engine = get(name)
            state[name] = ""
            if name == "native":
                found = engine.features()
        except EngineUnavailable as error:
            state[name] = str(error)
    return {"engines": state, **found}
