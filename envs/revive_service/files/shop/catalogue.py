"""The catalogue: every article and an index of their words, in memory."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KINDS = ("lamp", "chair", "table", "shelf", "rug", "clock", "vase", "stool", "mirror", "bench", "desk", "bowl")
COLOURS = ("red", "blue", "green", "white", "black", "grey", "yellow", "brown", "orange", "violet", "silver")
WOODS = ("oak", "beech", "walnut", "pine", "ash", "cherry", "maple", "birch", "larch", "elm", "alder", "teak", "yew")


def article(number):
    title = f"{COLOURS[number % 11]} {KINDS[number * 7 % 12]} in {WOODS[number * 5 % 13]} model {number % 997}"
    return {"number": number, "title": title, "cents": 500 + number * 7919 % 90000, "note": f"shelf {number:06d} " * 4}


def add(state, new):
    if new["number"] not in state["articles"]:
        for word in new["title"].split():
            state["words"].setdefault(word, []).append(new["number"])
    state["articles"][new["number"]] = new


class Handler(BaseHTTPRequestHandler):
    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        state, prefix = self.server.state, self.server.prefix
        if not self.path.startswith(prefix + "/"):
            return self.answer(404, {"error": f"nothing is served outside {prefix}"})
        kind, _, key = self.path[len(prefix) + 1 :].partition("/")
        if kind == "count":
            return self.answer(200, len(state["articles"]))
        if kind == "article" and key.isdigit() and int(key) in state["articles"]:
            return self.answer(200, state["articles"][int(key)])
        if kind == "word":
            return self.answer(200, sorted(state["words"].get(key, [])))
        return self.answer(404, {"error": "no such thing"})

    def do_PUT(self):
        add(self.server.state, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.answer(200, {"status": "kept"})

    def log_message(self, *args):
        pass


def main():
    with open(sys.argv[1]) as file:
        settings = json.load(file)
    address, _, port = settings["listen"].rpartition(":")
    state = {"articles": {}, "words": {}}
    for number in range(1, settings["articles"] + 1):
        add(state, article(number))
    server = ThreadingHTTPServer((address, int(port)), Handler)
    server.state, server.prefix = state, settings["prefix"]
    server.serve_forever()


if __name__ == "__main__":
    main()
