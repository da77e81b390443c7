"""A Python repository with a slow test suite and two faults; the verifier asks the package about cases of its own."""

from __future__ import annotations

import calendar
import json
from fractions import Fraction

from bunshin_gym.envs import _judge
from bunshin_gym.envs.practice import _live
from bunshin_gym.habits import Attempt, Habits
from bunshin_gym.task import Task
from bunshin_gym.workspace import Workspace

from . import ledger

FOLDER = "/work/ledger"
FILES = {f"{FOLDER}/{path}": content for path, content in ledger.make().items()}
TESTS = {path: content for path, content in FILES.items() if "/tests/" in path}

INSTRUCTION = f"""\
The Python repository in {FOLDER} has failing tests (python3 -m pytest -q). Find the causes and correct the package, so
that it does what README.md says for every input. Leave the files in tests/ as they are. Submit when you are done."""

SPLITS: list[tuple[int, list[int]]] = [
    (100, [1, 1, 1]), (1, [1, 1, 1, 1]), (0, [3, 4]), (1000, [7]), (999, [1, 2, 3, 4, 5, 6]), (10**12 + 1, [3, 3, 1]),
    (5, [9, 1, 9, 1, 9]), (7, [1, 1, 1, 1, 1]), (11, [2, 3, 5, 7, 11, 13]),
]  # fmt: skip
DATES: list[tuple[int, int, int, int]] = [
    (2024, 1, 31, 1), (2023, 1, 31, 1), (2023, 1, 31, 2), (2000, 2, 29, 12), (1999, 12, 31, 2), (2100, 1, 30, 1),
    (2023, 3, 31, 1), (2023, 5, 15, 30), (2020, 2, 29, 48), (2023, 12, 1, 1),
]  # fmt: skip

DRIVER = """
import json, sys
sys.path.insert(0, sys.argv[1])
from datetime import date
from ledger.dates import add_months, due
from ledger.money import split
asked = json.loads(sys.argv[2])
print(json.dumps({
    "splits": [split(amount, weights) for amount, weights in asked["splits"]],
    "dates": [str(add_months(date(y, m, d), n)) for y, m, d, n in asked["dates"]],
    "due": [str(day) for day in due(date(2023, 10, 31), 8)],
}))
"""


def split(amount: int, weights: list[int]) -> list[int]:
    """What the package must give, found with fractions."""
    exact = [Fraction(amount * weight, sum(weights)) for weight in weights]
    shares = [int(share) for share in exact]
    order = sorted(range(len(weights)), key=lambda n: (shares[n] - exact[n], n))
    for n in order[: amount - sum(shares)]:
        shares[n] += 1
    return shares


def later(year: int, month: int, day: int, months: int) -> str:
    year, month = divmod(year * 12 + month - 1 + months, 12)
    return f"{year}-{month + 1:02}-{min(day, calendar.monthrange(year, month + 1)[1]):02}"


def verify(ws: Workspace) -> float:
    """1.0 where the tests are untouched and the package is right on cases of our own, else 0.0."""
    if not _judge.unchanged(ws, TESTS):
        return 0.0
    expected = {
        "splits": [split(*case) for case in SPLITS],
        "dates": [later(*case) for case in DATES],
        "due": [later(2023, 10, 31, n) for n in range(8)],
    }
    asked = {"splits": SPLITS, "dates": DATES}
    return float(_judge.python(ws, DRIVER, FOLDER, json.dumps(asked)) == expected)


def write(path: str, old: str, new: str) -> str:
    """A command that puts `new` where the body of a function begins with `old`, up to the end of that function."""
    return f"""\
python3 - <<'EOF'
import pathlib
path = pathlib.Path("{path}")
head, sign, rest = path.read_text().partition('''{old}''')
tail = rest.partition("\\n\\n\\n")[2]
path.write_text(head + sign + '''{new}''' + ("\\n\\n\\n" + tail if tail else "\\n"))
EOF"""


_SPLIT_HEAD = "    whole = sum(weights)\n"
_DATE_HEAD = "    year, month = divmod(at, 12)\n"

LARGEST = write(
    "ledger/money.py",
    _SPLIT_HEAD,
    """\
    shares = [amount * weight // whole for weight in weights]
    order = sorted(range(len(weights)), key=lambda n: (-(amount * weights[n] % whole), n))
    for n in order[: amount - sum(shares)]:
        shares[n] += 1
    return shares""",
)
LAST_TAKES = write(
    "ledger/money.py",
    _SPLIT_HEAD,
    """\
    shares = [amount * weight // whole for weight in weights]
    shares[-1] += amount - sum(shares)
    return shares""",
)
ROUNDED = write("ledger/money.py", _SPLIT_HEAD, "    return [round(amount * weight / whole) for weight in weights]")
FIRST_ONES = write(
    "ledger/money.py",
    _SPLIT_HEAD,
    """\
    shares = [amount * weight // whole for weight in weights]
    for n in range(amount - sum(shares)):
        shares[n] += 1
    return shares""",
)
SHORT_MONTHS = write(
    "ledger/dates.py", _DATE_HEAD, "    return date(year, month + 1, min(day.day, last_day(year, month + 1)))"
)
SHORT_MONTHS_SED = (
    "sed -i 's/return date(year, month + 1, .*)$/"
    "return date(year, month + 1, min(day.day, last_day(year, month + 1)))/' ledger/dates.py"
)
TO_28 = "sed -i 's/return date(year, month + 1, .*)$/return date(year, month + 1, min(day.day, 28))/' ledger/dates.py"

CHECK = "python3 -m pytest -q 2>&1 | tail -5"
LOOK = (f"cd {FOLDER} && ls", "cat README.md", "python3 -m pytest -q 2>&1 | tail -25")

WRONG = {
    "the last share takes the rest": (*LOOK, LAST_TAKES, SHORT_MONTHS, CHECK),
    "the first shares take the rest": (*LOOK, FIRST_ONES, SHORT_MONTHS, CHECK),
    "months end on the 28th": (*LOOK, LARGEST, TO_28, CHECK),
    "the tests are removed": (*LOOK, "rm tests/test_split_*.py tests/test_due_*.py", CHECK),
}

HABITS = Habits(
    opening=(
        (LOOK[0], f"cd {FOLDER} && ls ledger tests", f"cd {FOLDER} && find . -name '*.py' | sort"),
        (LOOK[1], "cat README.md pytest.ini", "head -12 README.md"),
        (LOOK[2], "python3 -m pytest -q -x 2>&1 | tail -30", "python3 -m pytest 2>&1 | grep -c FAILED"),
    ),
    reading=(
        "cat ledger/money.py",
        "cat ledger/dates.py",
        "cat ledger/loans.py",
        "cat tests/test_split_chf.py",
        "cat tests/test_due_gbp.py",
        "python3 -m pytest -q tests/test_split_chf.py 2>&1 | tail -3",
    ),
    attempts=(
        Attempt((LARGEST, SHORT_MONTHS), right=True, weight=3),
        Attempt((SHORT_MONTHS_SED, LARGEST), right=True, weight=2),
        Attempt((LAST_TAKES,), right=False, weight=2),
        Attempt((ROUNDED, SHORT_MONTHS), right=False, weight=2),
        Attempt((SHORT_MONTHS_SED,), right=False, weight=2),
        Attempt((LARGEST, TO_28), right=False, weight=1),
    ),
    check=(CHECK, "python3 -m pytest -q 2>&1 | tail -20", "python3 -m pytest -q -x 2>&1 | tail -15"),
    again=(
        "python3 -m pytest -q tests/test_split_eur.py 2>&1 | tail -8",
        "python3 -m pytest -q tests/test_due_usd.py 2>&1 | tail -8",
        "python3 -c 'from ledger.money import split; print(split(100, [1, 1, 1]))'",
        "cat ledger/dates.py",
    ),
    closing=("python3 -m pytest -q 2>&1 | tail -1", "python3 -m pytest -q tests/test_split_chf.py 2>&1 | tail -1"),
    patience=3,
)

TASK = Task(
    name="test_suite",
    instruction=INSTRUCTION,
    image=_live.image,
    files={**FILES, **_live.files()},
    setup=tuple(_live.start(FOLDER)),
    verifier=verify,
    step_limit=48,
    call_timeout=300.0,
    spec={"env": _live.environment()},
    solution=(*LOOK, LARGEST, SHORT_MONTHS, CHECK),
    wrong=WRONG["the last share takes the rest"],
    habits=HABITS,
)
