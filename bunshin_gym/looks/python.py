"""What Python code looks at, as far as its text tells."""

from __future__ import annotations

import ast
import re

from bunshin_gym.looks.look import NOTHING, Look

__all__ = ["look_of_code"]

_MODULES = {
    **dict.fromkeys(("time", "datetime", "sched", "timeit", "calendar", "zoneinfo", "cProfile", "profile"), "clock"),
    **dict.fromkeys(("random", "secrets", "uuid", "tempfile"), "randomness"),
    **dict.fromkeys(
        (
            "socket",
            "ssl",
            "urllib",
            "requests",
            "httpx",
            "http",
            "aiohttp",
            "ftplib",
            "smtplib",
            "socketserver",
            "paramiko",
            "websockets",
            "urllib3",
        ),
        "network",
    ),
    **dict.fromkeys(("psutil", "resource", "platform_info"), "the machine"),
}
_RUNNING = {"threading", "multiprocessing", "subprocess", "asyncio", "concurrent", "pexpect", "pty", "signal", "daemon"}
# What can be taken from these modules without looking at anything.
_HARMLESS = {
    "datetime": {"timedelta", "timezone", "date", "datetime", "time"},
    "time": {"sleep", "strptime", "struct_time"},
    "uuid": {"UUID", "uuid3", "uuid5", "NAMESPACE_DNS", "NAMESPACE_URL"},
    "urllib": {"parse"},
    "http": {"HTTPStatus"},
    "random": {"Random", "seed"},
}
_CALLS = {
    "now": "clock",
    "utcnow": "clock",
    "today": "clock",
    "time_ns": "clock",
    "perf_counter": "clock",
    "monotonic": "clock",
    "process_time": "clock",
    "ctime": "clock",
    "localtime": "clock",
    "gmtime": "clock",
    "urandom": "randomness",
    "getrandom": "randomness",
    "getpid": "process ids",
    "getppid": "process ids",
    "getloadavg": "the machine",
    "default_rng": "randomness",
    "shuffle": "randomness",
    "rand": "randomness",
    "randn": "randomness",
    "randint": "randomness",
    "choice": "randomness",
    "sample": "randomness",
    "permutation": "randomness",
    "uuid1": "randomness",
    "uuid4": "randomness",
    "mkdtemp": "randomness",
    "mkstemp": "randomness",
}
_NAMES = {"id": "addresses", "hash": "addresses", "object": "addresses"}
_TIMES = {
    "getmtime",
    "getctime",
    "getatime",
    "st_mtime",
    "st_ctime",
    "st_atime",
    "st_mtime_ns",
    "st_ctime_ns",
    "samefile",
}
_STATS = {"stat", "lstat", "fstat", "st_ino", "st_dev", "st_blocks"}
_PATHS = re.compile(r"/dev/u?random|/proc/(?!cpuinfo|version)|/sys/")


def look_of_code(code: str) -> Look:
    """What a piece of code looks at. What does not parse looks at nothing: it only fails."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return NOTHING
    seeded = "seed(" in code or "random_state" in code or re.search(r"(?:default_rng|Random|RandomState)\(\s*\w", code)
    look = NOTHING
    for node in ast.walk(tree):
        found = _look_of_node(node)
        if found.outside == "randomness" and seeded:
            found = Look("", found.strict, found.leaves_running)
        look |= found
    return look


def _look_of_node(node: ast.AST) -> Look:
    if isinstance(node, ast.Import):
        look = NOTHING
        for alias in node.names:
            look |= _of_module(alias.name, set())
        return look
    if isinstance(node, ast.ImportFrom):
        return _of_module(node.module or "", {alias.name for alias in node.names})
    if isinstance(node, ast.Attribute):
        if node.attr in _TIMES:
            return Look(strict="times")
        if node.attr in _STATS:
            return Look(strict="inodes")
        if node.attr in ("Popen", "system", "fork", "spawn", "Thread", "Process"):
            return Look(leaves_running=True)
        return Look(_CALLS.get(node.attr, ""))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return Look(_NAMES.get(node.func.id, "") or _CALLS.get(node.func.id, ""))
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and _PATHS.search(node.value):
        return Look("randomness" if "random" in node.value else "the machine")
    return NOTHING


def _of_module(name: str, taken: set[str]) -> Look:
    top, _, below = name.partition(".")
    if top in _RUNNING:
        return Look(leaves_running=True)
    harmless = _HARMLESS.get(top, set())
    if below and below.split(".")[0] in harmless:
        return NOTHING
    if taken and taken <= harmless:
        return NOTHING
    # What a module of these gives is looked at where it is used, by the names of its functions.
    if top in ("datetime", "calendar", "zoneinfo") or (top == "random" and not taken):
        return Look("randomness") if top == "random" else NOTHING
    return Look(_MODULES.get(top, ""))
