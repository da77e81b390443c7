"""A Python package for loans, and its tests: 36 modules, some 500 tests that take seconds, generated from three kinds.

Two faults are in it: shares of an amount do not add up to it, and a month after the 31st does not exist.
"""

from __future__ import annotations

from functools import cache

CURRENCIES = ("chf", "eur", "usd", "gbp", "sek", "nok", "dkk", "pln", "czk", "huf", "ron", "bgn")

MONEY = '''\
"""Amounts, in cents."""

from decimal import ROUND_HALF_EVEN, Decimal


def cents(amount):
    """The nearest whole number of cents."""
    return int(Decimal(amount).quantize(Decimal(1), rounding=ROUND_HALF_EVEN))


def split(amount, weights):
    """`amount` in shares as `weights` say; the shares add up to it."""
    whole = sum(weights)
    return [amount * weight // whole for weight in weights]
'''

DATES = '''\
"""Due dates."""

import calendar
from datetime import date


def last_day(year, month):
    return calendar.monthrange(year, month)[1]


def add_months(day, months):
    """The same day `months` later; the last of the month where that month is too short."""
    at = day.year * 12 + day.month - 1 + months
    year, month = divmod(at, 12)
    return date(year, month + 1, day.day)


def due(first, count):
    """`count` due dates, a month apart, counted from the first."""
    return [add_months(first, n) for n in range(count)]
'''

LOANS = '''\
"""Annuities."""

from decimal import Decimal, getcontext

from ledger.dates import due
from ledger.money import cents

getcontext().prec = 34


def rate(percent):
    """A month's interest on 1."""
    return Decimal(percent) / 1200


def payment(principal, percent, months):
    """What is paid each month."""
    r = rate(percent)
    return cents(principal / months) if r == 0 else cents(principal * r / (1 - (1 + r) ** -months))


def schedule(principal, percent, months, first):
    """Rows (due date, interest, repaid, left); the last payment settles what is left."""
    r, left, each, rows = rate(percent), principal, payment(principal, percent, months), []
    for number, day in enumerate(due(first, months), 1):
        interest = cents(left * r)
        repaid = left if number == months else min(left, each - interest)
        left -= repaid
        rows.append((day, interest, repaid, left))
    return rows
'''

README = """\
# ledger

Loans: amounts and their shares (`ledger/money.py`), due dates (`ledger/dates.py`), annuities (`ledger/loans.py`).

* Shares of an amount add up to it, whatever the weights: what whole cents leave over goes, a cent each, to the shares
  with the largest fractions left, the first of equal ones first.
* A loan of the 31st is due on the last day of shorter months, and on the 31st of those that have one.

`python3 -m pytest -q` tests.
"""

_SPLIT = """\
import random

import pytest

from ledger.money import split

rng = random.Random({seed})
CASES = [
    (rng.randrange(10**9), [rng.randrange(1, 50) for _ in range(rng.randrange(1, 40))]) for _ in range(12)
]


@pytest.mark.parametrize("amount, weights", CASES)
def test_{name}_shares_add_up(amount, weights):
    assert sum(split(amount, weights)) == amount


@pytest.mark.parametrize("amount, weights", CASES)
def test_{name}_shares_are_fair(amount, weights):
    for share, weight in zip(split(amount, weights), weights):
        assert abs(share - amount * weight / sum(weights)) <= 1
"""

_DUE = """\
from datetime import date

import pytest

from ledger.dates import add_months, due, last_day


@pytest.mark.parametrize("day", [1, 15, 28, {day}])
def test_{name}_due_dates(day):
    days = due(date({year}, 1, day), 120)
    assert days == sorted(set(days))
    assert all(d.day == min(day, last_day(d.year, d.month)) for d in days)


@pytest.mark.parametrize("months", range(0, 48, 12))
def test_{name}_years(months):
    assert add_months(date({year}, 5, {day}), months) == date({year} + months // 12, 5, {day})
"""

_LOAN = """\
from datetime import date

import pytest

from ledger.loans import payment, schedule


@pytest.mark.parametrize("percent", ["0", "0.9", "1.75", "2.5", "3.125", "4", "5.5", "7", "9.9"])
@pytest.mark.parametrize("years", [1, 5, 10, 15, 20, 30])
def test_{name}_loans_are_repaid(percent, years):
    for principal in range({first}, {first} + 1_200_000, 100_000):
        rows = schedule(principal, percent, 12 * years, date({year}, 1, 15))
        assert rows[-1][-1] == 0
        assert sum(repaid for _, _, repaid, _ in rows) == principal
        assert all(interest >= 0 for _, interest, _, _ in rows)
        assert payment(principal, percent, 12 * years) * 12 * years >= principal - 12 * years
"""


@cache
def make() -> dict[str, bytes]:
    """The repository's files by path below its folder."""
    files = {
        "README.md": README,
        "ledger/__init__.py": '"""Loans."""\n',
        "ledger/money.py": MONEY,
        "ledger/dates.py": DATES,
        "ledger/loans.py": LOANS,
        "conftest.py": "",
        "pytest.ini": "[pytest]\naddopts = -p no:cacheprovider\n",
    }
    for number, name in enumerate(CURRENCIES):
        plain = {"name": name, "seed": number, "day": 29 + number % 3, "year": 2001 + number}
        plain["first"] = 1_000_000 + 77_777 * number
        files[f"tests/test_split_{name}.py"] = _SPLIT.format(**plain)
        files[f"tests/test_due_{name}.py"] = _DUE.format(**plain)
        files[f"tests/test_loan_{name}.py"] = _LOAN.format(**plain)
    return {path: text.encode() for path, text in files.items()}
