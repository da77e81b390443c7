"""Tables of sensor readings as they arrive, and as they should be.

A table starts as clean readings; each is then written in one of the ways the stations write them. So the clean form
is known without ever parsing the messy one.
"""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

MISSING = ("", "n/a", "-", "NULL")
STATIONS = ("BRN-1", "BRN-2", "GVA-1", "LUG-4", "SMN-7", "ZRH-2", "ZRH-3")


@dataclass(frozen=True)
class Reading:
    station: str
    time: tuple[int, int, int, int, int]
    tenths: int  # of a degree Celsius
    humidity: int | None


def _pick(rng: random.Random) -> Callable[[int], int]:
    # random() gives the same sequence on every version of Python; randrange() and choice() need not.
    return lambda n: int(rng.random() * n)


def _time(reading: Reading, way: int) -> str:
    year, month, day, hour, minute = reading.time
    return (
        f"{year}-{month:02d}-{day:02d} {hour:02d}:{minute:02d}",
        f"{day:02d}.{month:02d}.{year} {hour:02d}:{minute:02d}",
        f"{year}/{month:02d}/{day:02d}T{hour:02d}:{minute:02d}Z",
    )[way]


def _temperature(reading: Reading, way: int) -> str:
    celsius = Decimal(reading.tenths) / 10
    # Two decimals of Fahrenheit: back in Celsius never near the middle between two tenths.
    fahrenheit = (celsius * 9 / 5 + 32).quantize(Decimal("0.01"), ROUND_HALF_UP)
    return (f"{celsius:.1f}", f"{celsius:.1f}".replace(".", ","), f"{celsius:.1f} C", f"{fahrenheit}F")[way]


def _humidity(reading: Reading, way: int) -> str:
    if reading.humidity is None:
        return MISSING[way]
    return (f"{reading.humidity}%", f"{reading.humidity}", f"{reading.humidity} %", f" {reading.humidity}")[way]


def _table(header: list[str], rows: list[list[str]], end: str) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator=end)
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue().encode()


def make(seed: int, count: int) -> tuple[bytes, bytes]:
    """A messy table of about `count` rows and its clean form, both as CSV."""
    pick = _pick(random.Random(seed))
    messy: list[list[str]] = []
    kept: dict[tuple[str, tuple[int, ...]], Reading] = {}
    previous: list[Reading] = []
    for _ in range(count):
        reading = Reading(
            STATIONS[pick(len(STATIONS))],
            (2023 + pick(2), 1 + pick(12), 1 + pick(28), pick(24), 5 * pick(12)),
            pick(480) - 120,
            None if pick(9) == 0 else 15 + pick(85),
        )
        if previous and pick(12) == 0:  # the same instant again, corrected
            old = previous[pick(len(previous))]
            reading = Reading(old.station, old.time, reading.tenths, reading.humidity)
        previous.append(reading)
        station = (reading.station, reading.station.lower(), f" {reading.station} ", f"{reading.station}\t")[pick(4)]
        time, temperature = _time(reading, pick(3)), _temperature(reading, pick(4))
        fault = pick(25)
        if fault == 0:
            time = ("unknown", "0000-00-00 00:00", "2024-13-01 10:00")[pick(3)]
        elif fault == 1:
            temperature = MISSING[pick(4)]
        else:
            kept[reading.station, reading.time] = reading
        messy.append([station, time, temperature, _humidity(reading, pick(4))])
    clean = [
        [
            reading.station,
            _time(reading, 2).replace("/", "-"),
            f"{Decimal(reading.tenths) / 10:.1f}",
            "" if reading.humidity is None else str(reading.humidity),
        ]
        for _, reading in sorted(kept.items())
    ]
    return (
        _table(["Station", "Time", "Temperature", "Humidity"], messy, "\r\n"),
        _table(["station", "time", "temperature_c", "humidity_pct"], clean, "\n"),
    )
