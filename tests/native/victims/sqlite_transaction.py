"""An open transaction of sqlite3: it can be committed or rolled back, and others are locked out meanwhile."""

import os
import sqlite3

from victim import HERE, expect, go, ok, ready

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
    other = sqlite3.connect(HERE / f"{mode}.db", timeout=0)
    try:
        other.execute("begin immediate")
        expect(False, f"{mode}: the lock is gone")
    except sqlite3.OperationalError:
        pass
    other.close()
    connection.execute("commit")
    connection.close()
    other = sqlite3.connect(HERE / f"{mode}.db")
    expect(other.execute("select sum(n) from t").fetchone() == (500500,), f"{mode}: after the commit")
    expect(other.execute("select word from mine").fetchall() == [(own,)], f"{mode}: somebody else writes here")
    expect(other.execute("pragma integrity_check").fetchone() == ("ok",), f"{mode}: integrity")
ok()
