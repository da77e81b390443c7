"""The speculator: while policies think, it has likely next calls made in forks.

Who does what. `observe`, `hint` and `take` are called by the rollouts' own threads, and only leave or look up notes.
One *scout* thread learns which call came, predicts what comes next, and clears away what is not wanted any more.
`places` *workers* each see one draft through: they take the one that is expected to win the most, fork, make the call,
and wait until it is adopted or squashed. So there are never more drafts than workers.

A draft is begun only while there is a processor that no rollout's call wants. It runs in the background (SCHED_IDLE);
where that is not to be had, it is squashed as soon as rollouts want more processors than there are.

One lock, `_changed`, guards stands, drafts and queues. Nothing that takes time is done with it held.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from bunshin_gym.debt import owed
from bunshin_gym.errors import BunshinError, InvalidToolCall
from bunshin_gym.looks import cacheable, leaves_running, strict
from bunshin_gym.materialise import Materialiser
from bunshin_gym.rollout import Rollout
from bunshin_gym.speculate.draft import Phase, Run, Stand
from bunshin_gym.speculate.past import Made, Past
from bunshin_gym.speculate.predict import Guess, Predictor
from bunshin_gym.speculate.seam import Draft
from bunshin_gym.speculate.worth import Worth
from bunshin_gym.stats import Stats
from bunshin_gym.tools import validate
from bunshin_gym.tree import Edge, Node, Tree
from bunshin_gym.usage import Holding

__all__ = ["Drafts"]

_GUESSES = 4  # the likeliest ones are looked at
_LEAST = 0.05  # less likely ones are not
_MUCH = 2.0  # times the gain of the draft that has to go
_BEHIND = 1000  # notes that may wait for the scout: beyond that it forgets the oldest

_log = logging.getLogger("bunshin_gym")


class Drafts:
    """Speculates with up to `places` drafts at a time. `predictor` says what may come next, `worth` whether it pays.

    `processors`: how many rollouts' calls may run before no draft is begun.
    """

    kind = "drafts"
    rank = 0

    def __init__(
        self,
        places: int,
        predictor: Predictor,
        materialiser: Materialiser,
        tree: Tree,
        stats: Stats,
        *,
        worth: Worth | None = None,
        processors: int | None = None,
    ) -> None:
        if places < 1:
            raise ValueError(f"there must be room for at least 1 draft, not {places}")
        self.places = places
        self.predictor = predictor
        self.worth = worth if worth is not None else Worth()
        self._materialiser = materialiser
        self._tree = tree
        self._stats = stats
        self._processors = processors if processors is not None else len(os.sched_getaffinity(0))
        self._changed = threading.Condition()
        self._stands: dict[Rollout, Stand] = {}
        self._pasts: dict[Rollout, Past] = {}
        self._drafts: list[Run] = []  # proposed, begun and ready ones
        self._notes: deque[Stand] = deque()  # for the scout: where rollouts have come to
        self._rubbish: deque[Callable[[], None]] = deque()  # for the scout: what is to be cleared away
        self._calling: set[Rollout] = set()  # rollouts whose calls run
        self._threads: list[threading.Thread] = []
        self._scouting = False
        self._closed = False
        materialiser.ledger.register(self)

    # -- the rollouts' side

    def observe(self, rollout: Rollout) -> None:
        """The rollout has come to its node: what was drafted for where it was goes, and what comes next is guessed."""
        node, trail = rollout.node, rollout.trail
        timeout = trail[-1].edge.timeout if trail else 0.0
        with self._changed:
            self._calling.discard(rollout)
            if self._closed:
                return
            known = rollout in self._stands
            self._leave(rollout)
            stand = self._stands[rollout] = Stand(rollout, node, timeout)
            self._notes.append(stand)
            while len(self._notes) > _BEHIND:
                self._notes.popleft()
            self._start()
            self._changed.notify_all()
        rollout.rest()
        if not known:
            rollout.watch(lambda: self.leave(rollout))

    def hint(self, rollout: Rollout, text: str) -> None:
        """Guess anew, with what the policy has written so far."""
        with self._changed:
            stand = self._stands.get(rollout)
            if stand is not None and not self._closed:
                stand.text = text
                if stand not in self._notes:
                    self._notes.append(stand)
                self._changed.notify_all()

    def leave(self, rollout: Rollout) -> None:
        """The rollout makes no more calls."""
        with self._changed:
            self._calling.discard(rollout)
            self._leave(rollout)
            self._stands.pop(rollout, None)
            self._pasts.pop(rollout, None)
            self._changed.notify_all()  # who waits for a draft looks whether its rollout was closed

    def take(self, rollout: Rollout, edge: Edge) -> Draft | None:
        """The draft of the call, finished; waits for one that is under way. None where there is none worth anything."""
        rollout.reclaim()
        asked = time.perf_counter()
        with self._changed:
            self._calling.add(rollout)
            self._make_room()
            draft = self._find(rollout, edge)
            if draft is None:
                return None
            draft.taker = rollout
        draft.urge()
        with self._changed:
            self._changed.wait_for(lambda: draft.phase in (Phase.READY, Phase.SQUASHED) or rollout.closed)
            if draft.phase is not Phase.READY or rollout.closed:
                self._squash(draft)
                return None
            draft.phase = Phase.ADOPTED
            self._drafts.remove(draft)
            at, result = draft.at, draft.result
            self._changed.notify_all()
        workspace, old = draft.scout.hand_over(), rollout.hand_over()
        if old is not None:
            self._clear_later(old.close)
        if workspace is None or at is None or result is None or not workspace.alive:
            if workspace is not None:
                self._clear_later(workspace.close)
            return None
        waited = time.perf_counter() - asked
        self._stats.add(drafts_saved_seconds=max(0.0, result.duration + draft.owed - waited))
        return Draft(workspace, result, at)

    def squash(self, number: int | None = None) -> int:
        """Let go of so many drafts that nobody waits for (None: of all), least valuable first. How many there were."""
        with self._changed:
            loose = sorted((draft for draft in self._drafts if draft.taker is None), key=lambda draft: draft.gain)
            chosen = loose if number is None else loose[:number]
            for draft in chosen:
                self._squash(draft)
            return len(chosen)

    # -- as a holder of memory: see `budget`

    def holdings(self) -> Iterable[Holding]:
        """The snapshots that were made for drafts; their forks count as workspaces."""
        with self._changed:
            stands = list(self._stands.values())
        return [snapshot.holding() for stand in stands if (snapshot := stand.snapshot) is not None]

    def shed(self, wanted: int) -> int:
        """Squash the least valuable draft, and wait until its fork is gone: as long as that takes to end."""
        with self._changed:
            loose = [draft for draft in self._drafts if draft.taker is None and draft.phase is not Phase.PROPOSED]
            if not loose:
                return 0
            draft = min(loose, key=lambda draft: draft.gain)
            self._squash(draft)
        draft.clear()
        return 1

    def settle(self, timeout: float | None = None) -> bool:
        """Wait until all that can be drafted now is drafted; False where `timeout` seconds did not do."""
        with self._changed:
            return self._changed.wait_for(self._is_settled, timeout)

    def close(self) -> None:
        """Squash everything, and wait until nothing is left. Idempotent."""
        with self._changed:
            self._closed = True
            for rollout in list(self._stands):
                self._leave(rollout)
            self._stands.clear()
            for draft in list(self._drafts):
                self._squash(draft)
            self._notes.clear()
            self._changed.notify_all()
            threads = list(self._threads)
        self._clear_away()
        for thread in threads:
            thread.join()
        self._clear_away()

    # -- with the lock held

    def _leave(self, rollout: Rollout) -> None:
        """What was drafted for where the rollout stands is of no use to it."""
        stand = self._stands.get(rollout)
        if stand is None or stand.left:
            return
        stand.left = True
        for draft in [draft for draft in self._drafts if draft.stand is stand and draft.taker is None]:
            self._squash(draft)
        self._rubbish.append(stand.close)

    def _squash(self, draft: Run) -> None:
        if draft.phase in (Phase.ADOPTED, Phase.SQUASHED):
            return
        if draft.phase is not Phase.PROPOSED:
            self._rubbish.append(draft.clear)  # its call ends, and its worker is free
        draft.phase = Phase.SQUASHED
        self._drafts.remove(draft)
        self._stats.add(drafts_squashed=1)
        if self._stats.events is not None:
            self._stats.events.add("squash", at=draft.stand.node.number, note=str(draft.edge.call))
        self._changed.notify_all()

    def _find(self, rollout: Rollout, edge: Edge) -> Run | None:
        """A draft of that call made in the state where the rollout is, that is under way and nobody else's."""
        node = rollout.node
        for draft in list(self._drafts):
            there = draft.stand.node
            same = there is node or (node.state is not None and there.state is node.state and not strict(edge.call))
            if draft.edge != edge or not same or draft.taker is not None:
                continue
            if draft.phase is not Phase.PROPOSED:
                return draft
            self._squash(draft)  # the call itself is quicker
        return None

    def _make_room(self) -> None:
        """Where drafts cannot run in the background, those beyond the processors that are left give way."""
        running = [draft for draft in self._drafts if draft.phase is Phase.BEGUN and draft.taker is None]
        loud = sorted((draft for draft in running if not draft.in_background), key=lambda draft: draft.gain)
        for draft in loud[: max(0, len(self._calling) + len(loud) - self._processors)]:
            self._squash(draft)

    def _displace(self) -> None:
        """Where every place is taken, the least valuable draft makes room for one that is worth much more."""
        taken = [draft for draft in self._drafts if draft.phase is not Phase.PROPOSED]
        best = self._best()
        loose = [draft for draft in taken if draft.taker is None]
        if best is None or len(taken) < self.places or not loose:
            return
        least = min(loose, key=lambda draft: draft.gain)
        if best.gain > _MUCH * least.gain:
            self._squash(least)

    def _start(self) -> None:
        if self._threads:
            return
        jobs: list[tuple[str, Callable[[], None]]] = [("bunshin-scout", self._scout)]
        jobs += [(f"bunshin-draft-{number}", self._work) for number in range(1, self.places + 1)]
        self._threads = [threading.Thread(target=job, name=name, daemon=True) for name, job in jobs]
        for thread in self._threads:
            thread.start()

    def _best(self) -> Run | None:
        """The draft to begin next, if a processor is free for it."""
        running = sum(draft.phase is Phase.BEGUN for draft in self._drafts)
        if len(self._calling) + running >= self._processors:
            return None
        proposed = [draft for draft in self._drafts if draft.phase is Phase.PROPOSED]
        return max(proposed, key=lambda draft: draft.gain, default=None)

    def _is_settled(self) -> bool:
        if self._closed:
            return True
        idle = not (self._notes or self._rubbish or self._scouting)
        ready = sum(draft.phase is Phase.READY for draft in self._drafts)
        begun = any(draft.phase is Phase.BEGUN for draft in self._drafts)
        return idle and not begun and (ready >= self.places or self._best() is None)

    # -- the workers

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._best() is not None)
                draft = self._best()
                if self._closed or draft is None:
                    return
                draft.phase = Phase.BEGUN
                self._stats.add(drafts_begun=1)
            draft.perform(self._materialiser, self._stats, self.worth)
            with self._changed:
                if draft.phase is Phase.BEGUN:
                    if draft.result is not None:
                        draft.phase = Phase.READY
                    else:
                        self._squash(draft)
                self._changed.notify_all()
                self._changed.wait_for(lambda draft=draft: draft.phase is not Phase.READY)  # type: ignore[misc]
                squashed = draft.phase is Phase.SQUASHED
            if squashed:
                self._stats.add(drafts_wasted_seconds=draft.seconds)

    # -- the scout

    def _scout(self) -> None:
        while True:
            with self._changed:
                self._scouting = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._closed or self._notes or self._rubbish)
                if self._closed:
                    return
                self._scouting = True
                stand = self._notes.popleft() if self._notes else None
            self._clear_away()
            if stand is None:
                continue
            try:
                self._consider(stand)
            except Exception:  # a guess is never worth a failure
                _log.exception("what comes next could not be guessed")

    def _consider(self, stand: Stand) -> None:
        """Learn from the call that led here, and propose what may come next."""
        past = self._learn(stand)
        if past is None or stand.left or not stand.rollout.forkable:
            return
        guesses = self.predictor.predict(past)[:_GUESSES]
        proposed = [draft for guess in guesses if (draft := self._worthwhile(stand, past, guess)) is not None]
        with self._changed:
            if stand.left or self._closed:
                return
            for draft in proposed:
                if not any(other.edge == draft.edge and _same(other.stand.node, stand.node) for other in self._drafts):
                    self._drafts.append(draft)
                    self._stats.add(drafts_proposed=1)
            self._displace()
            self._changed.notify_all()

    def _learn(self, stand: Stand) -> Past | None:
        """What the rollout of a stand has done so far; the predictor is told the last of it, once."""
        rollout = stand.rollout
        before = self._pasts.get(rollout)
        made = [Made(step.edge.call, step.result) for step in rollout.trail]
        task = rollout.node.root.ident
        if before is not None and len(before.made) == len(made):
            past = Past(task, made, stand.text)
        else:
            done = len(before.made) if before is not None else 0
            for number in range(done, len(made)):
                known = before if before is not None and number == done else Past(task, made[:number])
                self.predictor.learn(known, made[number].call)
                self.worth.learn(task, *made[number])
            past = Past(task, made, stand.text)
        with self._changed:
            if rollout not in self._stands:
                return None
            self._pasts[rollout] = past
        return past

    def _worthwhile(self, stand: Stand, past: Past, guess: Guess) -> Run | None:
        """The draft of a guess; None where it may not be made, is in the tree anyway, or does not pay."""
        call, node = guess.call, stand.node
        edge = Edge(call, stand.timeout)
        try:
            validate(call)
        except InvalidToolCall:
            return None
        if guess.probability < _LEAST or stand.timeout <= 0 or not cacheable(call, node.root.given):
            return None
        if edge in node.volatile or (node.state is not None and edge in node.state.volatile):
            return None
        if any(leaves_running(one.call) for one in past.made) or self._tree.knows(node, edge, strict=strict(call)):
            return None
        rollout = stand.rollout
        own = rollout.workspace is not None and rollout.base is node
        base = rollout.base
        debt = 0.0
        if not own and not node.private and base is not None and node.descends(base):
            debt = owed(base, node).seconds
        seconds = self.worth.seconds(past.task, call)
        gain = self.worth.gain(guess.probability, seconds, owed=debt, seal=own and stand.snapshot is None)
        return Run(stand, edge, gain) if gain > 0 else None

    def _clear_later(self, job: Callable[[], None]) -> None:
        with self._changed:
            self._rubbish.append(job)
            self._changed.notify_all()

    def _clear_away(self) -> None:
        while True:
            with self._changed:
                job: Callable[[], Any] | None = self._rubbish.popleft() if self._rubbish else None
            if job is None:
                return
            try:
                job()
            except BunshinError as error:
                _log.warning("a draft could not be cleared away: %s", error)


def _same(one: Node, other: Node) -> bool:
    return one is other or (one.state is not None and one.state is other.state)
