"""Builds the shop's database. The rows are the same for everyone, whatever the version of Python."""

import sqlite3
import sys

COUNTRIES = ("AT", "BE", "CH", "DE", "DK", "ES", "FI", "FR", "IT", "NL", "NO", "PL", "PT", "SE")
CATEGORIES = ("books", "garden", "kitchen", "music", "office", "toys")
STATUSES = ("paid", "shipped", "shipped", "shipped", "cancelled", "pending")

SCHEMA = """
CREATE TABLE customers (id INTEGER PRIMARY KEY, code TEXT NOT NULL, country TEXT NOT NULL);
CREATE TABLE products (id INTEGER PRIMARY KEY, title TEXT NOT NULL, category TEXT NOT NULL);
CREATE TABLE orders (
    id INTEGER PRIMARY KEY,
    customer_id INTEGER NOT NULL REFERENCES customers (id),
    placed_at TEXT NOT NULL,  -- UTC
    status TEXT NOT NULL      -- pending, paid, shipped, cancelled
);
CREATE TABLE order_lines (
    order_id INTEGER NOT NULL REFERENCES orders (id),
    product_id INTEGER NOT NULL REFERENCES products (id),
    quantity INTEGER NOT NULL,
    unit_price_cents INTEGER NOT NULL
);
CREATE TABLE refunds (
    id INTEGER PRIMARY KEY,
    order_id INTEGER NOT NULL REFERENCES orders (id),
    amount_cents INTEGER NOT NULL,
    created_at TEXT NOT NULL
);
"""


def numbers(seed):
    """A linear congruential generator: pick(n) gives 0 … n-1."""
    state = seed

    def pick(n):
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (state >> 33) % n

    return pick


def rows():
    """All tables by name, each a list of tuples in the order of the columns."""
    pick = numbers(20240229)
    customers = [(n, f"C{n:04d}", COUNTRIES[min(pick(14), pick(14))]) for n in range(1, 601)]
    products = [(n, f"article {n:03d}", CATEGORIES[pick(6)]) for n in range(1, 121)]
    orders, lines, refunds = [], [], []
    for order in range(1, 9001):
        year, month, day = 2022 + pick(4), 1 + pick(12), 1 + pick(28)
        placed = f"{year}-{month:02d}-{day:02d}T{pick(24):02d}:{pick(60):02d}:00Z"
        orders.append((order, 1 + pick(600), placed, STATUSES[pick(6)]))
        total = 0
        for _ in range(1 + pick(4)):
            line = (order, 1 + pick(120), 1 + pick(5), 199 + 50 * pick(160))
            total += line[2] * line[3]
            lines.append(line)
        for _ in range(max(0, pick(9) - 6)):
            refunds.append((len(refunds) + 1, order, total // (2 + pick(6)), placed[:10]))
    return {"customers": customers, "products": products, "orders": orders, "order_lines": lines, "refunds": refunds}


def main():
    with sqlite3.connect(sys.argv[1]) as db:
        db.executescript(SCHEMA)
        for table, content in rows().items():
            db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(content[0]))})", content)


if __name__ == "__main__":
    main()
