"""What lives in a practice workspace beside the shell: about 200 MB, as in a workspace that has been worked in.

An interpreter (the tool `python`) with numpy, pandas and a table loaded; a language server that has read the project;
a service with a database. Where a program is not installed something smaller stands in for it: `roster()` says what is
used. Nothing of it is needed to do a task.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from bunshin_gym.errors import TaskError
from bunshin_gym.image import Image
from bunshin_gym.tools import ToolCall

FOLDER = "/srv/live"
_FILES = Path(__file__).parent / "files" / "live"

_LOAD = """\
import numpy as np, pandas as pd
table = pd.DataFrame(np.random.RandomState(7).rand(100_000, 10), columns=list("abcdefghij"))
table["key"] = (table.a * 97).astype("int64")
totals = table.groupby("key").mean()"""

_REDIS = (
    f"mkdir -p {FOLDER}/redis && redis-server --save '' --appendonly no --jemalloc-bg-thread no --port 0 "
    f"--unixsocket {FOLDER}/redis/socket --dir {FOLDER}/redis --daemonize yes --logfile {FOLDER}/redis/log >/dev/null",
    f"for _ in $(seq 3000); do redis-cli -s {FOLDER}/redis/socket ping >/dev/null 2>&1 && break; sleep 0.02; done",
    f"redis-cli -s {FOLDER}/redis/socket eval "
    "\"for n = 1, 25000 do redis.call('hset', 'job:' .. n, 'state', 'done', 'log', string.rep('line ' .. n, 50)) end\" "
    "0",
    # As one that has been up for a while: it gives back what loading took now, not ten seconds into the rollouts.
    f"redis-cli -s {FOLDER}/redis/socket memory purge",
)
_SQLITE = (
    f"(setsid python3 {FOLDER}/service.py {FOLDER}/jobs.sqlite {FOLDER}/up >{FOLDER}/service.log 2>&1 </dev/null &)",
)


def _location(package: str) -> str | None:
    """The folder from which `package` is imported; None where it is not installed."""
    found = importlib.util.find_spec(package)
    origin = found.origin if found is not None else None
    return str(Path(origin).resolve().parents[1]) if origin is not None else None


def _system(program: str) -> bool:
    """Whether a workspace on the machine's own image finds that program."""
    return shutil.which(program, path="/usr/local/bin:/usr/bin:/bin:/usr/sbin") is not None


def _has_server() -> bool:
    """Whether the language server is installed, with the library that it reads Python with."""
    return all(_location(name) is not None for name in ("pylsp", "jedi"))


def _await(path: str, what: str) -> str:
    """A command that waits until a program has said by a file that it is up, for a minute at most."""
    wait = f"for _ in $(seq 1200); do [ -e {path} ] && break; sleep 0.05; done"
    return f"{wait}; [ -e {path} ] || {{ echo '{what} does not come up:'; tail -n 5 {FOLDER}/*.log; false; }}"


def packages() -> tuple[str, ...]:
    """The folders of this interpreter's packages that a workspace has to see."""
    found = (_location(name) for name in ("pandas", "numpy", "pytest", "pylsp"))
    return tuple(dict.fromkeys(place for place in found if place is not None))


def roster() -> dict[str, str]:
    """What lives in the workspaces, and what stands in for what is missing."""
    return {
        "interpreter": "python with numpy, pandas and a table of 100,000 rows",
        "language server": "pylsp" if _has_server() else "a stand-in: the standard library's syntax trees",
        "service": "redis-server" if _system("redis-server") else "a stand-in: http.server with sqlite",
    }


def environment() -> Mapping[str, str]:
    """Variables of the workspaces."""
    return {"PYTHONPATH": ":".join(packages()), "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/root", "LC_ALL": "C.UTF-8"}


def image(*commands: str) -> Image:
    """The machine's toolchain and this interpreter's packages; and what `commands` made there, once.

    Raises TaskError where pandas or pytest is missing.
    """
    missing = [name for name in ("numpy", "pandas", "pytest") if _location(name) is None]
    if missing:
        raise TaskError(
            f"the practice tasks need {' and '.join(missing)} beside bunshin_gym: pip install 'bunshin_gym[practice]'"
        )
    host = Image.host(expose=packages())
    variables = " ".join(f"{name}={value}" for name, value in environment().items())
    made = [f"export {variables}; {command}" for command in commands]
    return Image.build(host, made, network="none") if made else host


def files() -> dict[str, bytes]:
    """The programs of ours that a workspace needs for it."""
    return {f"{FOLDER}/{path.name}": path.read_bytes() for path in sorted(_FILES.iterdir()) if path.is_file()}


def start(project: str) -> Sequence[str | ToolCall]:
    """The calls that start it all; `project` is the folder the language server reads."""
    server = "language_server.py" if _has_server() else "syntax_trees.py"
    return (
        ToolCall("python", {"code": _LOAD}),
        f"(setsid python3 {FOLDER}/{server} {project} {FOLDER}/ready >{FOLDER}/server.log 2>&1 </dev/null &)",
        *(_REDIS if _system("redis-server") else (*_SQLITE, _await(f"{FOLDER}/up", "the service"))),
        _await(f"{FOLDER}/ready", "the language server"),
    )
