"""What the test of the browser has inside the workspace; only the standard library.

browser.py serve            a page on 127.0.0.1:8000, and a websocket on it that answers each message with a count
browser.py ask EXPRESSION   the JSON value of a JavaScript expression in the page, through DevTools on port 9222
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import socket
import struct
import sys
import urllib.request

PAGE = """<!doctype html><title>stateful page</title><body style="font: 20px sans-serif">
<p>ticks <b id=ticks>0</b>, said <b id=said>-</b></p>
<form><input id=name autofocus size=40 style="font: 20px monospace"><select id=kind><option>plum<option>pear</select>
<input type=checkbox id=sure></form>
<script>
let count = 0;
const state = {made: Math.random(), list: [1, 2, 3], said: []};
setInterval(() => { count += 1; ticks.textContent = count; }, 50);
const talk = new WebSocket("ws://127.0.0.1:8000/talk");
talk.onmessage = event => { state.said.push(event.data); said.textContent = event.data; };
function ask(text) {
    return new Promise(resolve => {
        talk.addEventListener("message", event => resolve(event.data), {once: true});
        talk.send(text);
    });
}
</script>"""
GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def frame(text: str, mask: bytes = b"") -> bytes:
    data = text.encode()
    size = len(data)
    length = bytes([size]) if size < 126 else b"\x7e" + struct.pack(">H", size)
    if mask:
        length = bytes([length[0] | 0x80]) + length[1:] + mask
        data = bytes(byte ^ mask[i % 4] for i, byte in enumerate(data))
    return b"\x81" + length + data


async def read_frame(reader: asyncio.StreamReader) -> str:
    head = await reader.readexactly(2)
    size = head[1] & 0x7F
    if size == 126:
        (size,) = struct.unpack(">H", await reader.readexactly(2))
    mask = await reader.readexactly(4) if head[1] & 0x80 else bytes(4)
    data = await reader.readexactly(size)
    return bytes(byte ^ mask[i % 4] for i, byte in enumerate(data)).decode()


async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
    if "upgrade" in headers:
        key = next(line.split(": ")[1] for line in lines if line.lower().startswith("sec-websocket-key"))
        accept = base64.b64encode(hashlib.sha1((key + GUID).encode()).digest()).decode()
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            + f"Sec-WebSocket-Accept: {accept}\r\n\r\n".encode()
        )
        number = 0
        while True:
            text = await read_frame(reader)
            number += 1
            writer.write(frame(f"{number}: {text}"))
    body = PAGE.encode() if lines[0].split()[1] == "/" else b""
    status = b"200 OK" if body else b"404 Not Found"
    head = b"HTTP/1.1 %s\r\nContent-Type: text/html\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    writer.write(head % (status, len(body)) + body)
    await writer.drain()
    writer.close()


async def serve() -> None:
    server = await asyncio.start_server(talk, "127.0.0.1", 8000)
    await server.serve_forever()


def read_exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise SystemExit("DevTools has closed the connection")
        data += part
    return data


def ask(expression: str) -> object:
    with urllib.request.urlopen("http://127.0.0.1:9222/json", timeout=20) as reply:
        pages = json.load(reply)
    (page,) = (page for page in pages if page["type"] == "page")
    path = page["webSocketDebuggerUrl"].split("9222", 1)[1]
    with socket.create_connection(("127.0.0.1", 9222), timeout=20) as connection:
        key = base64.b64encode(os.urandom(16)).decode()
        connection.sendall(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:9222\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += read_exactly(connection, 1)
        params = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        connection.sendall(frame(json.dumps({"id": 1, "method": "Runtime.evaluate", "params": params}), os.urandom(4)))
        while True:
            start = read_exactly(connection, 2)
            size = start[1] & 0x7F
            if size > 125:
                size = int.from_bytes(read_exactly(connection, 2 if size == 126 else 8), "big")
            message = json.loads(read_exactly(connection, size))
            if message.get("id") == 1:
                return message["result"]["result"].get("value")


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        asyncio.run(serve())
    else:
        print(json.dumps(ask(sys.argv[2])))
