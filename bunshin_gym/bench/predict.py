"""bench predict: how often predictors name the call that recorded rollouts made next, and how honest they are.

The rollouts of every task are dealt into folds. For each fold, predictors learn from all others, call by call, and then
say for every call of the fold what they expect; of the fold itself they see only what the rollout has done so far.

A call is *in the tree* where a rollout that was learned from has made it after the same calls (those that changed
nothing left out): a cache has it then, and running it ahead gains nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from bunshin_gym.errors import TaskError
from bunshin_gym.looks import cacheable, leaves_running
from bunshin_gym.speculate.learned import Learned
from bunshin_gym.speculate.past import Made, Past
from bunshin_gym.speculate.predict import Guess, Hint, Source
from bunshin_gym.speculate.ready import PREDICTORS
from bunshin_gym.speculate.worth import Worth
from bunshin_gym.tools import ExitReason, ToolCall, ToolResult
from bunshin_gym.traces import TIMED_OUT, TraceCall, TraceRollout, TraceTask

__all__ = ["Drafted", "Family", "Score", "evaluate"]

_BINS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0)


@dataclass
class Score:
    """One predictor over some calls. `top`: how often the call was among the first 1 and the first 3.

    `seconds`: what those calls took, and what the calls named first, or among the first 3, took of it. `loss`: log loss
    of the probability given to the call that came (one that was not named has what is left, shared by 1,000), in nats.
    `bins`: of all guesses, by probability: how many, the sum of the probabilities, and how many came.
    """

    predictor: str
    calls: int = 0
    first: int = 0
    three: int = 0
    seconds: float = 0.0
    first_seconds: float = 0.0
    three_seconds: float = 0.0
    loss: float = 0.0
    bins: list[list[float]] = field(default_factory=lambda: [[0, 0.0, 0] for _ in _BINS[1:]])

    def count(self, guesses: Sequence[Guess], call: ToolCall, seconds: float) -> None:
        """What was expected, what came, and what that took."""
        named = [guess.call for guess in guesses[:3]]
        self.calls += 1
        self.seconds += seconds
        self.first += named[:1] == [call]
        self.three += call in named
        self.first_seconds += seconds * (named[:1] == [call])
        self.three_seconds += seconds * (call in named)
        given = next((guess.probability for guess in guesses if guess.call == call), None)
        left = (1 - sum(guess.probability for guess in guesses)) / 1000
        self.loss -= math.log(max(left if given is None else given, 1e-6))
        for guess in guesses:
            row = self.bins[next(i for i, top in enumerate(_BINS[1:]) if guess.probability <= top)]
            row[0] += 1
            row[1] += guess.probability
            row[2] += guess.call == call

    @property
    def off(self) -> float:
        """The expected calibration error: how far probabilities are from what came, weighed by how many there are."""
        total = sum(row[0] for row in self.bins)
        return sum(abs(row[1] - row[2]) for row in self.bins) / total if total else 0.0

    def as_dict(self) -> dict[str, Any]:
        n = max(1, self.calls)
        return {
            "predictor": self.predictor,
            "calls": self.calls,
            "top1": self.first / n,
            "top3": self.three / n,
            "seconds": self.seconds,
            "top1_seconds": self.first_seconds,
            "top3_seconds": self.three_seconds,
            "log_loss": self.loss / n,
            "calibration_error": self.off,
            "calibration": [
                {"up_to": top, "guesses": row[0], "said": row[1] / row[0], "came": row[2] / row[0]}
                for top, row in zip(_BINS[1:], self.bins, strict=True)
                if row[0]
            ],
        }


class _Once:
    """A source that several predictors share: it is asked, and told, once for all of them."""

    def __init__(self, source: Source) -> None:
        self.name, self.prior = source.name, source.prior
        self._source = source
        self._asked: tuple[Past, Sequence[Hint]] | None = None
        self._told: Past | None = None

    def hints(self, past: Past) -> Sequence[Hint]:
        if self._asked is None or self._asked[0] is not past:
            self._asked = past, self._source.hints(past)
        return self._asked[1]

    def learn(self, past: Past, call: ToolCall) -> None:
        if self._told is not past:
            self._told = past
            self._source.learn(past, call)


@dataclass
class Drafted:
    """What drafts would have come to, had each fork and seal taken `forking` seconds together. Seconds, and calls.

    `total`: what all calls took. `saved`: what those took that a draft had made; a policy thinks longer than that.
    `wasted`: forking and running of drafts that were not adopted.
    """

    forking: float
    begun: int = 0
    adopted: int = 0
    total: float = 0.0
    saved: float = 0.0
    wasted: float = 0.0

    def count(self, guesses: Sequence[Guess], one: _Call, worth: Worth, task: Hashable, *, known: bool) -> None:
        """The likeliest guesses, as far as they pay, and the call that came; `known`: it is in the tree."""
        self.total += one.seconds
        for guess in guesses[:4]:
            seconds = worth.seconds(task, guess.call)
            right = guess.call == one.call
            if (right and known) or not cacheable(guess.call) or not worth.gain(guess.probability, seconds, seal=True):
                continue
            self.begun += 1
            if right:
                self.adopted += 1
                self.saved += one.seconds
            else:
                self.wasted += seconds + self.forking


@dataclass(frozen=True)
class _Call:
    call: ToolCall
    made: Made
    seconds: float
    running: bool  # whether the rollout has left something running by then
    known: Hashable  # what has been done so far that changed something, and this call


@dataclass
class Family:
    """One family of tasks: scores by which calls ("all", "not in the tree"), and what drafts would have come to."""

    scores: dict[str, list[Score]]
    drafted: Drafted


def evaluate(
    tasks: Sequence[TraceTask],
    *,
    folds: int = 4,
    forking: float = 0.04,
    on_part: Callable[[str, int], None] = lambda name, total: None,
) -> dict[str, Family]:
    """What was found, by family of tasks (what stands before the slash). `forking`: seconds a fork and a seal take.

    Raises TaskError where no task has two rollouts, ValueError for fewer than two folds.
    """
    if folds < 2:
        raise ValueError(f"there must be at least 2 folds, not {folds}")
    families: dict[str, dict[str, list[list[_Call]]]] = {}
    for task in tasks:
        if len(task.rollouts) > 1:
            played = [_played(task, rollout) for rollout in task.rollouts]
            families.setdefault(task.name.partition("/")[0], {})[task.name] = played
    if not families:
        raise TaskError("there is no task with two rollouts or more to learn from and to test on")
    return {family: _family(family, groups, folds, forking, on_part) for family, groups in families.items()}


def _family(
    family: str,
    groups: dict[str, list[list[_Call]]],
    folds: int,
    forking: float,
    on_part: Callable[[str, int], None],
) -> Family:
    scores: dict[str, dict[str, Score]] = {"all": {}, "not in the tree": {}}
    drafted = Drafted(forking)
    for fold in range(folds):
        on_part(f"{family}, fold {fold + 1} of {folds}", 0)
        sources = [_Once(make()) for make in PREDICTORS.values()]
        mix = Learned("mix", sources)
        predictors = [*(Learned(source.name, [source]) for source in sources), mix]
        worth = Worth(fork=forking / 2, seal=forking / 2)
        tree: set[Hashable] = set()
        for task, rollout in _dealt(groups, fold, folds, test=False):
            tree.update((task, one.known) for one in rollout)
            for past, one in _along(task, rollout):
                worth.learn(task, *one.made)
                for predictor in predictors:
                    predictor.learn(past, one.call)
        for task, rollout in _dealt(groups, fold, folds, test=True):
            for past, one in _along(task, rollout):
                new = (task, one.known) not in tree
                for predictor in predictors:
                    guesses = predictor.predict(past)
                    for which in ("all", "not in the tree") if new else ("all",):
                        score = scores[which].setdefault(predictor.name, Score(predictor.name))
                        score.count(guesses, one.call, one.seconds)
                    if predictor is mix:
                        drafted.count([] if one.running else guesses, one, worth, task, known=not new)
    return Family({which: list(by_name.values()) for which, by_name in scores.items()}, drafted)


def _dealt(
    groups: dict[str, list[list[_Call]]], fold: int, folds: int, *, test: bool
) -> Iterator[tuple[str, list[_Call]]]:
    """The rollouts to learn from, or to test on: first the first of every task, then the second of every task."""
    most = max(map(len, groups.values()))
    for number in range(most):
        for task, rollouts in groups.items():
            if number < len(rollouts) and (number % folds == fold % min(folds, len(rollouts))) is test:
                yield task, rollouts[number]


def _along(task: str, rollout: Sequence[_Call]) -> Iterable[tuple[Past, _Call]]:
    made = [one.made for one in rollout]
    for number, one in enumerate(rollout):
        yield Past(task, made[:number]), one


def _played(task: TraceTask, rollout: TraceRollout) -> list[_Call]:
    calls: list[_Call] = []
    changed: tuple[str, ...] = ()
    running = False
    for recorded in rollout.calls:
        call = ToolCall("shell", {"command": recorded.command})
        known = (*changed, recorded.command)
        calls.append(_Call(call, Made(call, _result(recorded)), recorded.seconds, running, hash(known)))
        running = running or leaves_running(call)
        if not recorded.read_only:
            changed = known
    return calls


def _result(recorded: TraceCall) -> ToolResult:
    code = recorded.code if recorded.code is not None else recorded.recorded_code
    reason = ExitReason.TIMEOUT if code == TIMED_OUT else ExitReason.EXITED
    return ToolResult(recorded.output, exit_code=code, exit_reason=reason, duration=recorded.seconds)
