"""Stands in for a service with a database where redis-server is missing: HTTP on a socket of the loopback, sqlite below."""

import pathlib
import sqlite3
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

database, up = sys.argv[1:]
held = sqlite3.connect(database)
held.execute("pragma cache_size = -20000")
held.execute("create table jobs (id integer primary key, state text, log text)")
held.executemany("insert into jobs values (?, 'done', ?)", ((n, f"log line {n}" * 30) for n in range(25_000)))
held.commit()
held.execute("select sum(length(log)) from jobs").fetchone()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        row = held.execute("select state from jobs where id = ?", (self.path.strip("/"),)).fetchone()
        self.send_response(200 if row else 404)
        self.end_headers()
        self.wfile.write(row[0].encode() if row else b"")

    def log_message(self, *args):
        pass


server = HTTPServer(("127.0.0.1", 6380), Handler)
pathlib.Path(up).touch()
server.serve_forever()
