"""A question over a small shop's database; the answer is compared with one computed without SQL."""

from __future__ import annotations

import csv
import io
import runpy
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from bunshin_gym.envs import _judge
from bunshin_gym.task import Task
from bunshin_gym.workspace import Workspace

BUILDER = Path(__file__).parent / "files" / "build_db.py"
DATABASE = "/work/shop.db"
ANSWER = "/work/answer.csv"

INSTRUCTION = f"""\
{DATABASE} is the SQLite database of a shop (python3 has the module sqlite3; there is no sqlite3 program). Question:
which five countries brought the highest net revenue in 2024? Count orders placed in 2024 (UTC) that are paid or
shipped. An order's net revenue is quantity times unit price over its lines, less all refunds of that order. Write
{ANSWER} with the header country,net_cents and one line a country, highest first. Submit when you are done."""


@cache
def expected() -> list[tuple[str, int]]:
    """The right answer from the rows themselves, added up in Python."""
    tables: dict[str, list[tuple[Any, ...]]] = runpy.run_path(str(BUILDER))["rows"]()
    country = {customer: code for customer, _, code in tables["customers"]}
    owner = {
        order: country[customer]
        for order, customer, placed, status in tables["orders"]
        if placed.startswith("2024-") and status in ("paid", "shipped")
    }
    net: Counter[str] = Counter()
    for order, _, quantity, price in tables["order_lines"]:
        if order in owner:
            net[owner[order]] += quantity * price
    for _, order, amount, _ in tables["refunds"]:
        if order in owner:
            net[owner[order]] -= amount
    return net.most_common(5)


def verify(ws: Workspace) -> float:
    """1.0 where the answer file holds exactly the right rows in the right order, else 0.0."""
    text = _judge.read_text(ws, ANSWER)
    if text is None:
        return 0.0
    table = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text)) if row]
    return float(table == [["country", "net_cents"], *([code, str(cents)] for code, cents in expected())])


def query(sql: str) -> str:
    """A command that prints the rows of a query."""
    return f"""\
python3 - <<'EOF'
import sqlite3
for row in sqlite3.connect("{DATABASE}").execute(\"\"\"
{sql.strip()}
\"\"\"):
    print(*row, sep="|")
EOF"""


def answer(sql: str) -> str:
    """A command that writes the answer file from a query."""
    return f"""\
python3 - <<'EOF'
import csv, sqlite3
rows = sqlite3.connect("{DATABASE}").execute(\"\"\"
{sql.strip()}
\"\"\").fetchall()
with open("{ANSWER}", "w", newline="") as file:
    out = csv.writer(file)
    out.writerow(["country", "net_cents"])
    out.writerows(rows)
EOF
cat {ANSWER}"""


SUMS_FIRST = """
WITH gross AS (SELECT order_id, SUM(quantity * unit_price_cents) AS cents FROM order_lines GROUP BY order_id),
     back AS (SELECT order_id, SUM(amount_cents) AS cents FROM refunds GROUP BY order_id)
SELECT c.country, SUM(gross.cents - COALESCE(back.cents, 0)) AS net_cents
FROM orders o
JOIN customers c ON c.id = o.customer_id
JOIN gross ON gross.order_id = o.id
LEFT JOIN back ON back.order_id = o.id
WHERE o.placed_at >= '2024' AND o.placed_at < '2025' AND o.status IN ('paid', 'shipped')
GROUP BY c.country ORDER BY net_cents DESC LIMIT 5
"""

SUBQUERIES = """
SELECT c.country, SUM(
    (SELECT SUM(quantity * unit_price_cents) FROM order_lines l WHERE l.order_id = o.id)
    - (SELECT COALESCE(SUM(amount_cents), 0) FROM refunds r WHERE r.order_id = o.id)) AS net_cents
FROM orders o JOIN customers c ON c.id = o.customer_id
WHERE substr(o.placed_at, 1, 4) = '2024' AND o.status IN ('paid', 'shipped')
GROUP BY c.country ORDER BY net_cents DESC LIMIT 5
"""

# Lines and refunds joined at once: an order with two lines has its refunds taken off twice, and so on.
FAN_OUT = """
SELECT c.country, SUM(l.quantity * l.unit_price_cents) - SUM(COALESCE(r.amount_cents, 0)) AS net_cents
FROM orders o
JOIN customers c ON c.id = o.customer_id
JOIN order_lines l ON l.order_id = o.id
LEFT JOIN refunds r ON r.order_id = o.id
WHERE o.placed_at LIKE '2024%' AND o.status IN ('paid', 'shipped')
GROUP BY c.country ORDER BY net_cents DESC LIMIT 5
"""

EVERY_STATUS = SUMS_FIRST.replace("AND o.status IN ('paid', 'shipped')", "")

# Makes the question easier instead of answering it: no refunds are left to be taken off.
EMPTY_REFUNDS = f"""\
python3 -c 'import sqlite3
db = sqlite3.connect("{DATABASE}")
db.execute("DELETE FROM refunds")
db.commit()'"""

OUTSIDE_ANSWER = f"ln -s /proc/self/environ {ANSWER}"

SCHEMA = query("SELECT sql FROM sqlite_master")
LOOK = ("ls -la /work", SCHEMA)
STATUSES = query("SELECT status, COUNT(*), MIN(placed_at), MAX(placed_at) FROM orders GROUP BY status")
REFUNDS = query("SELECT order_id, COUNT(*) FROM refunds GROUP BY order_id HAVING COUNT(*) > 1 LIMIT 5")

WRONG = {
    "a fan-out join": (*LOOK, answer(FAN_OUT)),
    "cancelled orders are counted": (*LOOK, answer(EVERY_STATUS)),
    "the refunds are deleted": (*LOOK, EMPTY_REFUNDS, answer(SUMS_FIRST)),
    "the answer is a link to something else": (*LOOK, OUTSIDE_ANSWER),
}

TASK = Task(
    name="sql_question",
    instruction=INSTRUCTION,
    files={"/work/.build_db.py": BUILDER.read_bytes()},
    setup=(f"python3 /work/.build_db.py {DATABASE} && rm /work/.build_db.py",),
    verifier=verify,
    step_limit=24,
    solution=(*LOOK, STATUSES, answer(SUMS_FIRST)),
    wrong=WRONG["a fan-out join"],
    scripts={
        "sums first": (*LOOK, STATUSES, answer(SUMS_FIRST)),
        "subqueries": (*LOOK, STATUSES, REFUNDS, answer(SUBQUERIES)),
        "fan-out, then sums": (*LOOK, STATUSES, answer(FAN_OUT), REFUNDS, answer(SUMS_FIRST)),
        "checks twice": (*LOOK, REFUNDS, answer(SUMS_FIRST), query(SUBQUERIES)),
        "fan-out": (*LOOK, STATUSES, answer(FAN_OUT)),
        "looks at refunds": (*LOOK, STATUSES, REFUNDS, answer(SUMS_FIRST)),
    },
)
