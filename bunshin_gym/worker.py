"""A worker: one daemon thread that runs jobs one after another, and that may be given up.

Not `concurrent.futures`: its threads are joined when the program ends, so that one stuck call would keep the program
from ending. A worker whose job is late is abandoned; it ends when the job does, and what the job gave goes nowhere,
since nobody holds its future any more.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["Worker"]

T = TypeVar("T")
_Job = tuple[Callable[[], Any], "Future[Any]"]


class Worker:
    """Starts its thread with the first job."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, job: Callable[[], T]) -> Future[T]:
        """Run `job` after those submitted before."""
        future: Future[T] = Future()
        self._jobs.put((job, future))
        if self._thread is None:
            self._thread = threading.Thread(target=_work, args=(self._jobs,), name=self.name, daemon=True)
            self._thread.start()
        return future

    def stop(self) -> None:
        """End the thread after the jobs submitted so far. Does not wait."""
        self._jobs.put(None)

    def __del__(self) -> None:
        self.stop()

    def join(self, timeout: float) -> bool:
        """Wait for the end; whether it came."""
        if self._thread is not None:
            self._thread.join(timeout)
        return self._thread is None or not self._thread.is_alive()


def _work(jobs: queue.SimpleQueue[_Job | None]) -> None:
    # A function, not a method: a running thread must not keep its worker, and what hangs on it, alive.
    while (item := jobs.get()) is not None:
        job, future = item
        try:
            future.set_result(job())
        except BaseException as error:
            future.set_exception(error)
        del item, job, future
