"""The gateway: what customers reach. It asks the catalogue and puts prices into words."""

import json
import sys
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen


class Handler(BaseHTTPRequestHandler):
    def ask(self, path):
        settings = self.server.settings
        with urlopen(settings["catalogue"] + path, timeout=settings["timeout_seconds"]) as reply:
            return json.load(reply)

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        url = urlsplit(self.path)
        try:
            if url.path == "/health":
                self.answer(200, {"status": "ok", "articles": self.ask("/count")})
            elif url.path.startswith("/article/"):
                found = self.ask(f"/article/{int(url.path.removeprefix('/article/'))}")
                price = f"{found['cents'] / 100:.2f} {self.server.settings['currency']}"
                self.answer(200, {"number": found["number"], "title": found["title"], "price": price})
            elif url.path == "/search":
                word = parse_qs(url.query)["q"][0]
                numbers = self.ask(f"/word/{word}")
                self.answer(200, {"query": word, "count": len(numbers), "numbers": numbers[:10]})
            else:
                self.answer(404, {"error": "no such page"})
        except HTTPError as error:
            print(f"{self.path}: the catalogue says {error.code} {error.read().decode()}", flush=True)
            self.answer(502, {"error": "catalogue"})
        except (OSError, HTTPException) as error:
            print(f"{self.path}: no answer from {self.server.settings['catalogue']}: {error}", flush=True)
            self.answer(502, {"error": "catalogue"})

    def log_message(self, *args):
        pass


def main():
    with open(sys.argv[1]) as file:
        settings = json.load(file)
    address, _, port = settings["listen"].rpartition(":")
    try:
        server = ThreadingHTTPServer((address, int(port)), Handler)
    except OSError as error:
        sys.exit(f"cannot listen on {settings['listen']}: {error}")
    server.settings = settings
    print(f"listening on {settings['listen']}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
