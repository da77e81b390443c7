"""The audit: a share of the hits is run again, in forks, in the background, and compared with what was answered.

A *false hit* is one where the call gives something else in that state, or leads to another one. The record is dropped,
the call is not trusted in that state again, and the statistics say which call it was. The rollout that was answered is
not told: it has gone on. Nothing waits for an audit, and it gives way to everybody's calls; when too many wait, the
next are skipped, and counted.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from collections.abc import Callable

from bunshin_gym.errors import BunshinError
from bunshin_gym.looks import agree, of
from bunshin_gym.materialise import PATIENCE, Materialiser
from bunshin_gym.rollout import Rollout
from bunshin_gym.stats import Stats
from bunshin_gym.tools import ExitReason
from bunshin_gym.tree import Closable, Step, Tree

__all__ = ["Auditor"]

_WAITING = 64
_log = logging.getLogger("bunshin_gym")


class Auditor:
    """Runs a `share` of the hits again (0: none, 1: all). One thread, started with the first audit."""

    def __init__(
        self, tree: Tree, materialiser: Materialiser, stats: Stats, discard: Callable[[list[Closable]], None],
        share: float, *, seed: int = 0,
    ) -> None:  # fmt: skip
        self.tree = tree
        self.share = share
        self._materialiser = materialiser
        self._stats = stats
        self._discard = discard
        self._random = random.Random(seed)
        self._queue: deque[Step] = deque()
        self._changed = threading.Condition()
        self._busy = False
        self._closed = False
        self._running: Rollout | None = None
        self._thread: threading.Thread | None = None

    def consider(self, step: Step) -> None:
        """A hit was answered from `step`: perhaps it is looked into."""
        if self.share <= 0 or (self.share < 1 and self._random.random() >= self.share):
            return
        with self._changed:
            if self._closed:
                return
            if len(self._queue) >= _WAITING:
                self._stats.add(audits_skipped=1)
                return
            self.tree.pin(step.source)
            self._queue.append(step)
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="bunshin-audit", daemon=True)
                self._thread.start()

    def drain(self, timeout: float | None = None) -> bool:
        """Wait until every audit asked for is done; False where `timeout` seconds did not do."""
        with self._changed:
            return self._changed.wait_for(lambda: (not self._queue and not self._busy) or self._closed, timeout)

    def close(self) -> None:
        """Ask for no more; the one that runs ends at once. Idempotent."""
        with self._changed:
            self._closed = True
            waiting = list(self._queue)
            self._queue.clear()
            running, thread = self._running, self._thread
            self._changed.notify_all()
        for step in waiting:
            self._discard(self.tree.unpin(step.source))
        if running is not None:
            running.close()
        if thread is not None:
            thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closed)
                if self._closed:
                    return
                step = self._queue.popleft()
                rollout = self._running = Rollout(step.source)
                rollout.background = True
                self._busy = True
                self._changed.notify_all()
            try:
                with self._materialiser.ledger.parking.using(rollout):
                    self._audit(rollout, step)
            except Exception as error:  # whatever it is, the next audit is to be made, and who drains is not to wait
                self._stats.add(audits_failed=1)
                level = logging.INFO if isinstance(error, BunshinError) else logging.ERROR
                _log.log(level, "an audit could not be made: %s", error, exc_info=level == logging.ERROR)
            finally:
                rollout.close()
                self._discard(self.tree.unpin(step.source))
                with self._changed:
                    self._busy = False
                    self._running = None
                    self._changed.notify_all()

    def _audit(self, rollout: Rollout, step: Step) -> None:
        # The record is of this very history: so the same has to come out, also for a call that can notice times.
        workspace = self._materialiser.bring(rollout, strict=True)
        if rollout.node is not step.source or rollout.at is None:
            return  # the way there has turned out to be false itself: that has been counted
        with self._stats.timed("audit", at=step.source.number):
            result = workspace.call(step.edge.call, step.edge.timeout * PATIENCE)
        if result.exit_reason in (ExitReason.WORKSPACE_LOST, ExitReason.TIMEOUT):
            self._stats.add(audits_failed=1)
            return
        what = "" if agree(step.result, result, of(step.edge.call)) else "something else"
        state = step.target.state
        if not what and state is not None:
            digest = self._materialiser.digest(workspace, rollout.at, step.edge)
            if digest is not None and digest.loose != state.loose and digest.contradicts(state.parts):
                what = "another state (" + ", ".join(digest.differing(state.parts)) + ")"
        self._stats.add(audits=1)
        if what:
            self._stats.false_hit(str(step.edge.call))
            _log.warning("a call was answered from the cache, and gives %s now: %s", what, step.edge.call)
            self._discard(self.tree.forget(step))
