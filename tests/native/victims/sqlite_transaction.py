"""An open transaction of sqlite3: it can be committed or rolled back, and others are locked out meanwhile."""

import os
import sqlite3
import subprocess
import sys

from victim import HERE, expect, go, ok, ready

BEGIN = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('begin immediate')"

for mode in ("delete", "wal"):
    connection = sqlite3.connect(HERE / f"{mode}.db", isolation_level=None, timeout=0)
    connection.execute(f"pragma journal_mode={mode}")
    connection.execute("create table t (n integer)")
    connection.executemany("insert into t values (?)", [(n,) for n in range(1000)])
    connection.execute("begin immediate")
    connection.execute("update t set n = n + 1")
    globals()[mode] = connection
ready()
go()
own = os.urandom(4).hex()
for mode in ("delete", "wal"):
    connection = globals()[mode]
    connection.execute("create table mine (word text)")
    connection.execute("insert into mine values (?)", (own,))
    expect(connection.execute("select sum(n) from t").fetchone() == (500500,), f"{mode}: the transaction's own view")
    # Another process: within one, SQLite knows files by their device, which is another in every fork.
    other = subprocess.run([sys.executable, "-c", BEGIN, str(HERE / f"{mode}.db")], capture_output=True, text=True)
    expect("locked" in other.stderr, f"{mode}: the lock is gone: {other.stderr}")
    connection.execute("commit")
    connection.close()
    other = sqlite3.connect(HERE / f"{mode}.db")
    expect(other.execute("select sum(n) from t").fetchone() == (500500,), f"{mode}: after the commit")
    expect(other.execute("select word from mine").fetchall() == [(own,)], f"{mode}: somebody else writes here")
    expect(other.execute("pragma integrity_check").fetchone() == ("ok",), f"{mode}: integrity")
ok()
