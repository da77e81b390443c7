"""Workers: daemon threads that run jobs and may be given up. A worker is one, a crew a bounded number of them.

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

__all__ = ["Crew", "Worker"]

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


class Crew:
    """At most `size` threads that take jobs in the order they were submitted; started as they are needed.

    A job whose future is cancelled before it begins is left out.
    """

    def __init__(self, size: int, name: str) -> None:
        self.size = size
        self.name = name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._unfinished = 0
        self._stopped = False

    def submit(self, job: Callable[[], T]) -> Future[T]:
        """Run `job` as soon as a thread is free. Raises RuntimeError once stopped."""
        future: Future[T] = Future()
        with self._lock:
            if self._stopped:
                raise RuntimeError(f"{self.name} takes no more jobs")
            self._unfinished += 1
            if self._unfinished > len(self._threads) < self.size:
                name = f"{self.name}-{len(self._threads)}"
                thread = threading.Thread(target=_work, args=(self._jobs,), name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
            self._jobs.put((job, future))
        future.add_done_callback(self._finished)
        return future

    @property
    def unfinished(self) -> int:
        """Jobs that wait or run."""
        return self._unfinished

    def stop(self) -> None:
        """End the threads after the jobs submitted so far. Does not wait. Idempotent."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
            for _ in self._threads:
                self._jobs.put(None)

    def _finished(self, future: Future[Any]) -> None:
        with self._lock:
            self._unfinished -= 1


def _work(jobs: queue.SimpleQueue[_Job | None]) -> None:
    # A function, not a method: a running thread must not keep its worker, and what hangs on it, alive.
    while (item := jobs.get()) is not None:
        job, future = item
        if not future.set_running_or_notify_cancel():
            continue
        try:
            future.set_result(job())
        except BaseException as error:
            future.set_exception(error)
        del item, job, future
