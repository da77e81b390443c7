"""What a spec may say of clock and randomness."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest

import bunshin_gym as bg
from bunshin_gym.frozen import check_seed, frozen_instant, frozen_looks


@pytest.mark.parametrize(
    ("time", "instant"),
    [
        (0, (0, 0)),
        (1_700_000_000.5, (1_700_000_000, 500_000_000)),
        (np.int64(5), (5, 0)),
        (0.9999999999, (0, 999_999_999)),
        (datetime(2001, 9, 9, 1, 46, 40, 7, tzinfo=UTC), (1_000_000_000, 7000)),
        (datetime(2001, 9, 9, 1, 46, 40), (1_000_000_000, 0)),
        (datetime(2001, 9, 9, 3, 46, 40, tzinfo=timezone(timedelta(hours=2))), (1_000_000_000, 0)),
        (None, None),
    ],
)
def test_instants(time: float | datetime | None, instant: tuple[int, int] | None) -> None:
    assert frozen_instant(time) == instant


@pytest.mark.parametrize(
    "time", [-1, 1e18, float("nan"), float("inf"), "2020-01-01", True, b"", [], datetime(1969, 1, 1)]
)
def test_what_is_no_instant(time: object) -> None:
    with pytest.raises(ValueError, match="frozen_time must be a number of seconds since 1970 or a datetime"):
        bg.WorkspaceSpec(frozen_time=time)  # type: ignore[arg-type]


def test_seeds() -> None:
    assert [check_seed(seed) for seed in (None, 0, np.uint64(2**64 - 1))] == [None, 0, 2**64 - 1]
    for seed in (-1, 1 << 64, 1.0, "1", True):
        with pytest.raises(ValueError, match="seed must be an integer from 0 to"):
            bg.WorkspaceSpec(seed=seed)  # type: ignore[arg-type]


def test_what_is_frozen() -> None:
    assert frozen_looks(None, None) == set()
    assert frozen_looks(0, None) == {"clock"}
    assert frozen_looks(0, 0) == {"clock", "randomness"}
