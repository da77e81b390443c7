"""The little of D-Bus that the test speaks: calls with one string, and answers to them."""

import os
import socket
import struct
from dataclasses import dataclass


@dataclass
class Message:
    kind: int
    serial: int
    reply_to: int
    sender: str
    member: str
    text: str


def _pad(data, to):
    return data + b"\0" * (-len(data) % to)


def _string(text):
    return struct.pack("<I", len(text)) + text.encode() + b"\0"


class Bus:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(30)
        self.socket.connect(path)
        self.input = self.socket.makefile("rb")
        self.socket.sendall(b"\0AUTH EXTERNAL " + str(os.getuid()).encode().hex().encode() + b"\r\n")
        assert self.input.readline().startswith(b"OK")
        self.socket.sendall(b"BEGIN\r\n")
        self.serial, self.kept = 0, []
        self.name = self.ask("Hello")

    def send(self, kind, fields, text):
        self.serial += 1
        signature = "" if text is None else "s" if isinstance(text, str) else "su"
        body = (
            b""
            if text is None
            else _string(text)
            if isinstance(text, str)
            else _pad(_string(text[0]), 4) + struct.pack("<I", text[1])
        )
        array = b""
        for code, form, value in [*fields, *([(8, "g", signature)] if signature else [])]:
            array = _pad(array, 8) + bytes([code, len(form)]) + form.encode() + b"\0"
            if form == "g":
                array += bytes([len(value)]) + value.encode() + b"\0"
            elif form == "u":
                array = _pad(array, 4) + struct.pack("<I", value)
            else:
                array = _pad(array, 4) + _string(value)
        head = b"l" + bytes([kind, 0, 1]) + struct.pack("<III", len(body), self.serial, len(array)) + array
        self.socket.sendall(_pad(head, 8) + body)
        return self.serial

    def call(self, to, path, interface, member, text=None):
        return self.send(1, [(1, "o", path), (2, "s", interface), (3, "s", member), (6, "s", to)], text)

    def ask(self, member, name=None):
        text = (name, 4) if member == "RequestName" else name
        serial = self.call("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", member, text)
        return self.result(serial)

    def answer(self, message, text):
        self.send(2, [(5, "u", message.serial), (6, "s", message.sender)], text)

    def read(self):
        head = self.input.read(16)
        size, serial, length = struct.unpack("<III", head[4:16])
        fields = self.input.read(length + -length % 8)
        body = self.input.read(size)
        values, at = {}, 0
        while at < length:
            at += -at % 8
            code, form = fields[at], fields[at + 2 : at + 3]
            at += 4
            if form == b"g":
                values[code] = fields[at + 1 : at + 1 + fields[at]].decode()
                at += fields[at] + 2
            else:
                at += -at % 4
                (number,) = struct.unpack_from("<I", fields, at)
                at += 4
                values[code] = number
                if form != b"u":
                    values[code] = fields[at : at + number].decode()
                    at += number + 1
        text = ""
        if values.get(8, "").startswith("s"):
            (number,) = struct.unpack_from("<I", body)
            text = body[4 : 4 + number].decode()
        return Message(head[1], serial, values.get(5, 0), values.get(7, ""), values.get(3, ""), text)

    def _wait(self, right):
        for message in self.kept:
            if right(message):
                self.kept.remove(message)
                return message
        while not right(message := self.read()):
            self.kept.append(message)
        return message

    def hear(self, member):
        return self._wait(lambda message: message.kind == 1 and message.member == member)

    def result(self, serial):
        message = self._wait(lambda message: message.reply_to == serial)
        assert message.kind == 2, message
        return message.text
