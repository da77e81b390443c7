"""The state digest of the dummy engine. Exact: everything a later call could see is here to be looked at."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from bunshin_gym.state import StateDigest, combine

if TYPE_CHECKING:
    from bunshin_gym.engines.dummy_python import Interpreter
    from bunshin_gym.engines.dummy_session import Session

__all__ = ["digest"]


def digest(session: Session, origin: bytes) -> StateDigest:
    """The digest of a session. Background jobs born since the last one get a token made of `origin`."""
    began = time.perf_counter()
    loose: list[bytes] = []
    times: list[bytes] = []
    for path, content in sorted(session.files.entries.items()):
        entry = combine(path.encode(), b"directory" if content is None else b"file", content or b"")
        loose.append(entry)
        times.append(combine(entry, str(session.files.times.get(path, 0)).encode()))
    names = sorted(session.variables.items())
    shell = [f"{name}={value}" for name, value in names] + ["", *sorted(session.exported)]
    shell += ["", session.cwd, session.hostname, str(session.status), str(session.last_job)]
    jobs = []
    for job in session.live_jobs():
        job.token = job.token or combine(b"job", origin, str(job.pid).encode())
        jobs.append(job.token)
    parts = {
        "files": combine(*loose),
        "times": combine(*times),
        "shell": combine(*(text.encode() for text in shell)),
        "processes": combine(*sorted(jobs)),
        "python": _python(session.python, origin),
    }
    whole = combine(*(part for name, part in parts.items() if name != "times"))
    unique = "background jobs" if jobs else ""
    milliseconds = (time.perf_counter() - began) * 1e3
    return StateDigest(whole, combine(whole, parts["times"]), unique, milliseconds, parts=parts)


def _python(python: Interpreter | None, origin: bytes) -> bytes:
    if python is None:
        return combine(b"python")
    seen: dict[int, int] = {}
    try:
        return combine(b"python", *(combine(n.encode(), _value(v, seen, origin)) for n, v in python.variables.items()))
    except RecursionError:
        return combine(b"python", b"by history", origin)


def _value(value: Any, seen: dict[int, int], origin: bytes) -> bytes:
    """Plain data with its aliasing: `a = b = []` is not `a = []; b = []`. Other things count by history."""
    kind = type(value).__name__.encode()
    if isinstance(value, (list, tuple, dict, set, frozenset, bytearray)):
        if id(value) in seen:
            return combine(b"again", str(seen[id(value)]).encode())
        seen[id(value)] = len(seen)
    if isinstance(value, (list, tuple)):
        return combine(kind, *(_value(item, seen, origin) for item in value))
    if isinstance(value, dict):
        return combine(kind, *(_value(part, seen, origin) for pair in value.items() for part in pair))
    if isinstance(value, (set, frozenset)):
        # The order in which a set is shown follows from how it came to be, not from what is in it.
        return combine(kind, *(_value(item, seen, origin) for item in value), origin if len(value) > 1 else b"")
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, bytearray, range, slice)):
        return combine(kind, repr(value).encode("utf-8", "surrogatepass"))
    return combine(kind, b"by history", origin)
