"""What Python code looks at, as far as its text tells."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from bunshin_gym.frozen import NOTHING_GIVEN, Given
from bunshin_gym.looks.look import NOTHING, Look

__all__ = ["look_of_code"]

_CLOCK, _RANDOM, _PIDS = Look("clock"), Look("randomness"), Look("process ids")
_DURATIONS, _CHANCE = Look("durations"), Look("chance")  # which are not frozen: see docs/frozen.md
_NETWORK, _MACHINE, _RUNNING = Look("network"), Look("the machine"), Look(leaves_running=True)
_UNPARSED = Look("code that this Python cannot parse", leaves_running=True)

# Modules whose functions look outside, and those of their names that do not.
_MODULES: dict[str, tuple[Look, set[str]]] = {
    "time": (_CLOCK, {"sleep", "strptime", "struct_time", "mktime", "strftime", "tzname", "timezone"}),
    "datetime": (NOTHING, set()),  # see _CALLS: now, today, …
    "timeit": (_DURATIONS, set()),
    "cProfile": (_DURATIONS, set()),
    "profile": (_DURATIONS, set()),
    "random": (_RANDOM, {"Random", "seed", "getstate", "setstate"}),
    "secrets": (_RANDOM, {"compare_digest"}),
    "uuid": (_RANDOM, {"UUID", "uuid3", "uuid5", "NAMESPACE_DNS", "NAMESPACE_URL", "NAMESPACE_OID"}),
    "tempfile": (_RANDOM, {"gettempdir", "TemporaryFile", "SpooledTemporaryFile"}),
    "socket": (_NETWORK, set()),
    "ssl": (_NETWORK, set()),
    "urllib": (_NETWORK, {"parse", "error", "quote", "unquote", "urlparse", "urlencode", "urljoin", "parse_qs"}),
    "http": (_NETWORK, {"HTTPStatus", "cookies"}),
    "requests": (_NETWORK, {"exceptions"}),
    "httpx": (_NETWORK, set()),
    "aiohttp": (_NETWORK, set()),
    "ftplib": (_NETWORK, set()),
    "smtplib": (_NETWORK, set()),
    "socketserver": (_NETWORK, set()),
    "paramiko": (_NETWORK, set()),
    "websockets": (_NETWORK, set()),
    "urllib3": (_NETWORK, set()),
    "psutil": (_MACHINE, set()),
    "resource": (_MACHINE, {"setrlimit", "getrlimit"}),
    "pexpect": (_RUNNING, set()),
    "pty": (_RUNNING, set()),
    "daemon": (_RUNNING, set()),
}
# What looks outside wherever it comes from; what random numbers are drawn with, unless they are seeded.
_CALLS = {
    **dict.fromkeys(("now", "utcnow", "today", "time_ns"), _CLOCK),
    **dict.fromkeys(
        (
            *("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time", "process_time_ns"),
            *("thread_time", "thread_time_ns", "clock_gettime", "clock_gettime_ns"),
        ),
        _DURATIONS,
    ),
    **dict.fromkeys(("urandom", "getrandom", "uuid4", "mkdtemp", "mkstemp", "SystemRandom", "token_hex"), _RANDOM),
    "uuid1": _CHANCE,  # a process id or a service's count may be in it
    **dict.fromkeys(("getpid", "getppid"), _PIDS),
    **dict.fromkeys(("getloadavg", "cpu_percent", "virtual_memory"), _MACHINE),
    **dict.fromkeys(("Popen", "Thread", "Process", "Timer", "spawn", "spawnlp", "fork", "forkpty"), _RUNNING),
    **dict.fromkeys(
        ("create_subprocess_exec", "create_subprocess_shell", "ThreadingHTTPServer", "HTTPServer"), _RUNNING
    ),
}
_DRAWS = {
    "random",
    "rand",
    "randn",
    "randint",
    "uniform",
    "normal",
    "choice",
    "choices",
    "sample",
    "shuffle",
    "permutation",
}
_SEEDS = {"seed", "Random", "RandomState", "default_rng", "manual_seed", "PRNGKey"}
_ANY_ORDER = {"sorted", "len", "sum", "min", "max", "any", "all", "bool"}  # what these say of a set is always the same
_NAMES = {"id", "hash", "object"}  # addresses, and hashes of text, differ from process to process
_TIMES = {"getmtime", "getctime", "getatime", "st_mtime", "st_ctime", "st_atime", "st_mtime_ns", "st_ctime_ns"}
_STATS = {"samefile", "stat", "lstat", "fstat", "st_ino", "st_dev", "st_blocks"}
_LISTS = {"listdir", "scandir", "walk", "iterdir", "glob", "iglob", "rglob"}
_PATHS = re.compile(r"/dev/u?random|/proc/sys/kernel/random/uuid|/proc/(?!cpuinfo|version)|/sys/")


def look_of_code(code: str, *, session: bool = False, given: Given = NOTHING_GIVEN) -> Look:
    """What a piece of code looks at, beside what is `given`.

    Of what does not parse here, nothing is known: another Python may run it.

    In a `session` later code goes on with what this one imports, under whatever name: so importing is looking there.
    """
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _UNPARSED
    nodes = list(ast.walk(tree))
    modules = _imported(nodes)
    seeded = any(isinstance(node, ast.Call) and node.args and _name_of(node.func) in _SEEDS for node in nodes)
    look = NOTHING
    for node in nodes:
        for part in _looks_of_node(node, modules, seeded=seeded and not session):
            look |= _left(part, given)
    look |= _left(_look_of_sets(nodes), given)
    if session:
        for module in modules.values():
            look |= _left(_MODULES.get(module, (NOTHING, set()))[0], given)
    return look


def _left(look: Look, given: Given) -> Look:
    return replace(look, outside="") if look.outside in given else look


def _look_of_sets(nodes: list[ast.AST]) -> Look:
    """Sets of text come in another order in each process: as long as nothing but their order is left out of account."""
    settled: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.Call) and _name_of(node.func) in _ANY_ORDER:
            settled.update(map(id, node.args))
        elif isinstance(node, ast.Compare):
            settled.update(map(id, [node.left, *node.comparators]))
    for node in nodes:
        made = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("set", "frozenset")
        if (made or isinstance(node, (ast.Set, ast.SetComp))) and id(node) not in settled:
            return _RANDOM
    return NOTHING


def _imported(nodes: list[ast.AST]) -> dict[str, str]:
    """Under which name which top-level module is known."""
    found = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.partition(".")[0]] = alias.name.partition(".")[0]
    return found


def _name_of(function: ast.expr) -> str:
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _looks_of_node(node: ast.AST, modules: dict[str, str], *, seeded: bool) -> Iterator[Look]:
    if isinstance(node, ast.ImportFrom):
        yield _taken(node, seeded=seeded)
        yield from (_CALLS[alias.name] for alias in node.names if _CALLS.get(alias.name) in (_DURATIONS, _CHANCE))
    elif isinstance(node, ast.Attribute):
        yield from _looks_of_attribute(node, modules, seeded=seeded)
    elif isinstance(node, ast.Call):
        name = _name_of(node.func)
        if isinstance(node.func, ast.Name) and name in _NAMES:
            yield Look("addresses")
        elif name in ("default_rng", "RandomState", "Random") and not node.args and not node.keywords:
            yield _RANDOM
        elif isinstance(node.func, ast.Name):
            yield _CALLS.get(name, NOTHING)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        for found in _PATHS.finditer(node.value):
            yield _RANDOM if "random" in found[0] else _MACHINE


def _taken(node: ast.ImportFrom, *, seeded: bool) -> Look:
    """What `from module import names` takes, as a look at the module."""
    top, _, below = (node.module or "").partition(".")
    look, harmless = _MODULES.get(top, (NOTHING, set()))
    names = {alias.name for alias in node.names}
    if look == NOTHING or below.partition(".")[0] in harmless or names <= harmless:
        return NOTHING
    return NOTHING if top == "random" and seeded else look


def _looks_of_attribute(node: ast.Attribute, modules: dict[str, str], *, seeded: bool) -> Iterator[Look]:
    name = node.attr
    yield _CALLS.get(name, NOTHING)
    yield Look(
        strict="times" if name in _TIMES else "inodes" if name in _STATS else "",
        unordered=name in _LISTS,
    )
    if isinstance(node.value, ast.Name):
        module = modules.get(node.value.id, node.value.id)
        look, harmless = _MODULES.get(module, (NOTHING, set()))
        if look != NOTHING and name not in harmless and not (module == "random" and seeded):
            yield look
    of_numpy = isinstance(node.value, ast.Attribute) and node.value.attr == "random"
    if of_numpy and name in _DRAWS and not seeded:
        yield _RANDOM
