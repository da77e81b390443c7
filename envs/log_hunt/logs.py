"""Two days of logs of two web servers and their sign-in service, with one stolen session in them.

web1 writes UTC, web2 writes +0200; each has a current log, a rotated one and a compressed one. Many requests come from
addresses other than the one that signed in, since people share proxies; only the thief's address never signed in.
"""

from __future__ import annotations

import gzip
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from functools import cache

START = datetime(2024, 3, 4, tzinfo=UTC)
ZONES = {"web1": UTC, "web2": timezone(timedelta(hours=2))}
PATHS = (
    "/",
    "/account",
    "/cart",
    "/invoices",
    "/search?q=lamp",
    "/search?q=chair",
    "/item/{}",
    "/item/{}/reviews",
)
CRAWLER = "203.0.113.77"
THIEF = "198.51.100.23"
SESSIONS = 120
MINUTES = 2 * 24 * 60


@dataclass(frozen=True)
class Request:
    server: str
    second: int  # since START
    address: str
    session: str
    path: str
    status: int
    size: int


@dataclass(frozen=True)
class Case:
    files: dict[str, bytes]  # by path below the log folder
    answer: dict[str, str | int]


def _line(request: Request) -> str:
    time = (START + timedelta(seconds=request.second)).astimezone(ZONES[request.server])
    stamp = time.strftime("%d/%b/%Y:%H:%M:%S %z")
    return (
        f'{request.address} - {request.session} [{stamp}] "GET {request.path} HTTP/1.1" {request.status} {request.size}'
    )


def _zulu(second: int) -> str:
    return (START + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%SZ")


@cache
def make(seed: int = 5) -> Case:
    """The log files and the right answer."""
    rng = random.Random(seed)

    def pick(n: int) -> int:  # only random() is the same on every version of Python
        return int(rng.random() * n)

    proxies = [f"192.0.2.{10 + n}" for n in range(40)]
    requests: list[Request] = []
    signed_in: list[tuple[int, str, str]] = []
    sessions = [f"s{pick(16**8):08x}" for _ in range(SESSIONS)]
    stolen = sessions[61]

    def ask(session: str, address: str, second: int, server: str = "") -> None:
        path = PATHS[pick(len(PATHS))].format(1 + pick(400))
        status = (200, 200, 200, 200, 304, 404)[pick(6)]
        server = server or ("web1", "web2")[pick(2)]
        requests.append(
            Request(server, second, address, session, path, status, 0 if status == 304 else 300 + pick(9000))
        )

    for session in sessions:
        home = proxies[pick(len(proxies))]
        begin = 600 if session == stolen else pick(MINUTES - 600) * 60 + pick(60)
        signed_in.append((begin, home, session))
        for _ in range(20 + pick(30)):
            # One request in eight goes out through another proxy, where other people sign in.
            address = proxies[pick(len(proxies))] if pick(8) == 0 else home
            ask(session, address, begin + 1 + pick(36_000))
    signed_in.extend((pick(MINUTES) * 60, proxy, f"s{pick(16**8):08x}") for proxy in proxies)
    for _ in range(1500):
        ask("-", CRAWLER, pick(MINUTES * 60))
    # The thief uses the session over both days, so that the traces lie in every file, the first and the last in web2's.
    ask(stolen, THIEF, 1200, "web2")
    ask(stolen, THIEF, MINUTES * 60 - 1200, "web2")
    for _ in range(37):
        ask(stolen, THIEF, 3600 + pick(MINUTES * 60 - 7200))
    # Addresses that never signed in ask too, but without anybody's session.
    for n in range(300):
        ask("-", f"198.51.100.{30 + n % 60}", pick(MINUTES * 60))

    files: dict[str, bytes] = {}
    for server in ZONES:
        mine = sorted((r for r in requests if r.server == server), key=lambda r: (r.second, r.address, r.session))
        parts = (
            mine[: len(mine) // 3],
            mine[len(mine) // 3 : 2 * len(mine) // 3],
            mine[2 * len(mine) // 3 :],
        )
        texts = ["".join(_line(request) + "\n" for request in part).encode() for part in parts]
        files[f"{server}/access.log.2.gz"] = gzip.compress(texts[0], mtime=0)
        files[f"{server}/access.log.1"] = texts[1]
        files[f"{server}/access.log"] = texts[2]
    files["auth.log"] = "".join(
        f"{_zulu(second)} signin ok address={address} session={session}\n"
        for second, address, session in sorted(signed_in)
    ).encode()

    his = [request for request in requests if request.address == THIEF]
    answer: dict[str, str | int] = {
        "session": stolen,
        "address": THIEF,
        "first": _zulu(min(request.second for request in his)),
        "last": _zulu(max(request.second for request in his)),
        "requests": len(his),
        "bytes": sum(request.size for request in his),
    }
    return Case(files, answer)
