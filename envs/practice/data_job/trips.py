"""A year of a city's taxi trips, generated: a million rows, some of them twice, some cancelled, some in the wrong unit.

The workspaces' image holds the tables as CSV, made there once by `MAKE`; the judge makes the same table from the same
seed and computes the answer with numpy.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROWS = 1_000_000
ZONES = 260
BOROUGHS = ("North", "South", "East", "West", "Centre", "Harbour", "Airport")

# Runs in the image as it is here: what `columns` returns is the table.
TABLE = """\
def columns(rows, zones):
    rng = np.random.RandomState(20240301)
    number = np.arange(rows)
    again = rng.rand(rows) < 0.01
    number[1:][again[1:]] -= 1  # a repeated row has the number of the one before
    zone = rng.randint(0, zones, rows)
    minute = rng.randint(0, 366 * 24 * 60, rows)
    metres = np.round(np.exp(rng.normal(8.0, 0.7, rows))).astype(np.int64)
    miles = rng.rand(rows) < 0.05
    cents = 300 + metres // 7 + rng.randint(0, 250, rows)
    cancelled = rng.rand(rows) < 0.02
    for column in (zone, minute, metres, miles, cents, cancelled):
        column[1:][again[1:]] = column[:-1][again[1:]]
    return number, zone, minute, metres, miles, cents, cancelled
"""

MAKE = f"""\
import numpy as np, pandas as pd
{TABLE}
number, zone, minute, metres, miles, cents, cancelled = columns({ROWS}, {ZONES})
trips = pd.DataFrame({{
    "trip": number, "zone": zone, "minute": minute, "distance": np.where(miles, metres / 1609.344, metres),
    "unit": np.where(miles, "mi", "m"), "fare": cents, "status": np.where(cancelled, "cancelled", "done"),
}})
trips.to_csv("trips.csv", index=False, float_format="%.6f")
names = {BOROUGHS!r}
zones = pd.DataFrame({{"zone": range({ZONES}), "borough": [names[n * n % 7] for n in range({ZONES})]}})
zones.to_csv("zones.csv", index=False)
"""

README = """\
# trips

`trips.csv`: a million taxi trips of a leap year. `trip` numbers them; `zone` is where one began (`zones.csv` tells the
borough); `minute` counts from the year's beginning; `distance` is in metres, or in miles where `unit` says so; `fare`
is in cents; `status` is done or cancelled.

The recorder sometimes wrote a row twice: the same trip number, and everything else equal. Cancelled trips are no trips.
"""


@cache
def answer() -> dict[str, dict[str, float]]:
    """What the report must say, by borough."""
    scope: dict[str, Any] = {"np": np}
    exec(TABLE, scope)
    number, zone, minute, metres, _, cents, cancelled = scope["columns"](ROWS, ZONES)
    first: NDArray[np.bool_] = np.concatenate(([True], number[1:] != number[:-1]))
    valid = first & ~cancelled
    report = {}
    for index, name in enumerate(BOROUGHS):
        chosen = valid & (zone * zone % len(BOROUGHS) == index)
        if not chosen.any():
            continue
        hours = np.bincount(minute[chosen] // 60 % 24, minlength=24)
        report[name] = {
            "trips": int(chosen.sum()),
            "fares": int(cents[chosen].sum()),
            "mean_metres": round(float(metres[chosen].mean()), 1),
            "busiest_hour": int(hours.argmax()),
        }
    return report
