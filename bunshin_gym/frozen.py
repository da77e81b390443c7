"""A clock that stands still, and randomness from a seed: what a spec says of them, and what calls may then rely on.

Both are constants of a workspace, not a part of its state: the clock never moves, and what a program draws follows
from the seed, the call that runs, and the program's place in that call. docs/frozen.md says which programs take them.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bunshin_gym.workspace import WorkspaceSpec

__all__ = ["NOTHING_GIVEN", "Given", "check_seed", "frozen_instant"]

_NANO = 1_000_000_000
_LAST = 253_402_300_799  # the last second of the year 9999, beyond which many programs can name no date


def frozen_instant(frozen_time: float | datetime | None) -> tuple[int, int] | None:
    """Seconds since 1970 and nanoseconds of a `frozen_time`; None stays None. A datetime without a zone is in UTC.

    Raises ValueError for anything but a number or a datetime from 1970 to 9999.
    """
    if frozen_time is None:
        return None
    problem = ValueError(
        f"frozen_time must be a number of seconds since 1970 or a datetime, from 1970 to 9999, not {frozen_time!r}"
    )
    if isinstance(frozen_time, datetime):
        zoned = frozen_time if frozen_time.tzinfo is not None else frozen_time.replace(tzinfo=UTC)
        whole = zoned.replace(microsecond=0)
        seconds, nanoseconds = int(whole.timestamp()), zoned.microsecond * 1000
    else:
        if isinstance(frozen_time, (bool, str, bytes)):
            raise problem
        try:
            seconds = math.floor(frozen_time)
            nanoseconds = min(round(float(frozen_time - seconds) * _NANO), _NANO - 1)
        except (TypeError, ValueError, OverflowError):
            raise problem from None
    if not 0 <= seconds <= _LAST:
        raise problem
    return seconds, nanoseconds


def check_seed(seed: int | None) -> int | None:
    """The seed as an int; None stays None. Raises ValueError for anything but an integer of 64 bits."""
    if seed is None:
        return None
    try:
        number = -1 if isinstance(seed, bool) else operator.index(seed)
    except TypeError:
        number = -1
    if not 0 <= number < 1 << 64:
        raise ValueError(f"seed must be an integer from 0 to 2**64 - 1, not {seed!r}")
    return number


@dataclass(frozen=True)
class Given:
    """What calls may look at and still give the same: `in` asks by the words of `looks.Look.outside`.

    `instant`: the second since 1970 at which the clock stands, or None; `seeded`: whether randomness is.
    """

    instant: int | None = None
    seeded: bool = False

    @classmethod
    def by(cls, spec: WorkspaceSpec) -> Given:
        """What a workspace of this spec gives. Of the dummy engine: nothing, since it has neither."""
        if spec.engine == "dummy":
            return NOTHING_GIVEN
        instant = frozen_instant(spec.frozen_time)
        return cls(None if instant is None else instant[0], spec.seed is not None)

    def __contains__(self, look: str) -> bool:
        return (look == "clock" and self.instant is not None) or (look == "randomness" and self.seeded)

    def __bool__(self) -> bool:
        return self.instant is not None or self.seeded


NOTHING_GIVEN = Given()
