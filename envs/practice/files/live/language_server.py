"""An editor's side of a language server: starts pylsp, opens the project's files, asks about them, and stays."""

import json
import pathlib
import subprocess
import sys

project, ready = map(pathlib.Path, sys.argv[1:])
server = subprocess.Popen([sys.executable, "-m", "pylsp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
number = 0


def send(**message):
    data = json.dumps({"jsonrpc": "2.0"} | message).encode()
    server.stdin.write(b"Content-Length: %d\r\n\r\n" % len(data) + data)
    server.stdin.flush()


def ask(method, **params):
    global number
    number += 1
    send(id=number, method=method, params=params)
    while True:
        length = 0
        while line := server.stdout.readline().strip():
            if line.lower().startswith(b"content-length"):
                length = int(line.split()[1])
        message = json.loads(server.stdout.read(length))
        if message.get("id") == number and "method" not in message:
            return message.get("result")


ask("initialize", processId=None, rootUri=project.as_uri(), capabilities={})
send(method="initialized", params={})
sources = sorted(project.rglob("*.py"))[:4] or [pathlib.Path(json.__file__)]
for path in sources:
    where = {"uri": path.as_uri()}
    document = where | {"languageId": "python", "version": 1, "text": path.read_text()}
    send(method="textDocument/didOpen", params={"textDocument": document})
    ask("textDocument/documentSymbol", textDocument=where)
    ask("textDocument/completion", textDocument=where, position={"line": 0, "character": 0})
ready.touch()
server.wait()
