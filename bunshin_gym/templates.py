"""Templates made ready ahead of time: the workspaces that the groups' next rollouts will be forks of."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from bunshin_gym.worker import Worker

__all__ = ["Templates"]

_log = logging.getLogger("bunshin_gym")


class Templates:
    """Prepares what is wanted, one after another, in one background thread. `prepare` does nothing where all is ready.

    What fails is left to whoever really needs it: it will be tried again then, and raise.
    """

    def __init__(self, prepare: Callable[[str], None]) -> None:
        self._prepare = prepare
        self._worker = Worker("bunshin-ahead")
        self._lock = threading.Lock()
        self._wanted: list[str] = []
        self._closed = False

    def want(self, names: Sequence[str]) -> None:
        """These are needed next, the first one soonest; what was wanted before and is not begun is forgotten."""
        with self._lock:
            self._wanted = list(names)
            if names and not self._closed:
                self._worker.submit(self._work)

    def close(self) -> None:
        """Begin nothing more. Does not wait."""
        with self._lock:
            self._closed, self._wanted = True, []
        self._worker.stop()

    def join(self, timeout: float) -> bool:
        """Wait for what is being prepared; whether it has ended."""
        return self._worker.join(timeout)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._wanted or self._closed:
                    return
                name = self._wanted.pop(0)
            try:
                self._prepare(name)
            except Exception as error:
                if not self._closed:
                    _log.info("the workspace of task %r could not be prepared ahead: %s", name, error)
