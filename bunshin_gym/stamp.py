"""A stamp: what the answers of a call tree depend on beside the state. A saved one is used only where all is equal.

It names the package's code (and so its tools, digests and parsers), the native library, the machine as programs see it,
the engine, the image, the workspace's spec and the task's own content. Code and values count by what they are, not by a
version somebody would have to raise.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import hashlib
import os
import platform
import re
import sys
import sysconfig
import types
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from bunshin_gym.image import Image
from bunshin_gym.workspace import WorkspaceSpec

__all__ = ["Stamp", "fingerprint", "kernel", "package", "processor", "stamp_of"]


@dataclasses.dataclass(frozen=True)
class Stamp:
    """`parts`: digests by name; answers hold where all are equal. `verifier`: of the code that judges; verdicts hold
    where it is equal as well, and nowhere where it is "", which says that it could not be told.
    """

    parts: Mapping[str, str]
    verifier: str = ""

    def differs(self, other: Stamp) -> list[str]:
        """The names of the parts that are not equal."""
        return [name for name in {**self.parts, **other.parts} if self.parts.get(name) != other.parts.get(name)]


def stamp_of(spec: WorkspaceSpec, content: object, verifier: object = None) -> Stamp | None:
    """The stamp of a task's workspaces: `content` is whatever it puts into them. None where that cannot be told."""
    image = spec.image if spec.image is not None else Image.host()
    plain = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec) if field.name != "image"}
    known = {"spec": fingerprint(plain), "task": fingerprint(content)}
    if not all(known.values()):
        return None
    parts = {"package": package(), "machine": _machine(), "engine": spec.engine, "image": image.digest, **known}
    return Stamp(parts, fingerprint(verifier))


def fingerprint(value: object) -> str:
    """A digest of a plain value or of code, the same in every process; "" where something in it cannot be told.

    A function counts with its bytecode, its defaults, what it has closed over, and the functions, classes and values of
    its module that it names, and so on. What comes from an installed package or the standard library counts by name.
    """
    try:
        return _digest(value, {}).hex()
    except (_Unknown, RecursionError):
        return ""


class _Unknown(Exception):
    """Something that cannot be told apart from others of its kind."""


_TIMES = (datetime.date, datetime.time, datetime.timedelta)
_Seen = dict[int, int]  # functions and classes, by identity: which of them it was


def _digest(value: object, seen: _Seen) -> bytes:
    whole = hashlib.sha256(type(value).__qualname__.encode())
    for part in _parts(value, seen):
        whole.update(len(part).to_bytes(8, "little") + part)
    return whole.digest()


def _parts(value: Any, seen: _Seen) -> Iterator[bytes]:
    """Byte strings that stand for a value. Raises _Unknown."""
    if value is None or value is ... or isinstance(value, (bool, int, float, complex, str, PurePath, *_TIMES)):
        yield repr(value).encode("utf-8", "surrogatepass")
    elif isinstance(value, (bytes, bytearray)):
        yield bytes(value)
    elif isinstance(value, enum.Enum):
        yield value.name.encode()
    elif isinstance(value, Image):
        yield value.digest.encode()
    elif isinstance(value, re.Pattern):
        yield from (_digest(value.pattern, seen), _digest(value.flags, seen))
    elif isinstance(value, (list, tuple)):
        yield from (_digest(item, seen) for item in value)
    elif isinstance(value, (set, frozenset)):
        yield from sorted(_digest(item, seen) for item in value)
    elif isinstance(value, Mapping):
        yield from sorted(_digest(key, seen) + _digest(value[key], seen) for key in value)
    elif isinstance(value, types.CodeType):
        yield from (_digest(part, seen) for part in _code(value))
    elif isinstance(value, types.MethodType):
        yield from (_digest(value.__func__, seen), _digest(value.__self__, seen))
    elif isinstance(value, functools.partial):
        yield from (_digest(value.func, seen), _digest(value.args, seen), _digest(value.keywords, seen))
    elif isinstance(value, (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)):
        yield from _named(value, seen)
    elif dataclasses.is_dataclass(value):
        yield _digest(type(value), seen)
        yield from (_digest(getattr(value, field.name), seen) for field in dataclasses.fields(value))
    else:
        raise _Unknown


def _named(value: Any, seen: _Seen) -> Iterator[bytes]:
    module = value.__name__ if isinstance(value, types.ModuleType) else str(value.__module__)
    yield f"{module}.{getattr(value, '__qualname__', '')}".encode()
    if isinstance(value, types.BuiltinFunctionType) or _is_installed(module):
        return
    if isinstance(value, types.ModuleType):
        yield Path(value.__file__).read_bytes() if value.__file__ else b""
    elif id(value) in seen:
        yield str(seen[id(value)]).encode()
    else:
        seen[id(value)] = len(seen)
        if isinstance(value, types.FunctionType):
            yield from _function(value, seen)
        else:
            for name, member in sorted(vars(value).items()):
                inner = getattr(member, "__func__", getattr(member, "fget", member))
                if isinstance(inner, types.FunctionType):
                    yield from (name.encode(), _digest(inner, seen))
            yield from (_digest(base, seen) for base in value.__bases__)


def _function(function: types.FunctionType, seen: _Seen) -> Iterator[bytes]:
    try:
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:  # not filled yet
        raise _Unknown from None
    for part in (function.__code__, function.__defaults__, function.__kwdefaults__, cells):
        yield _digest(part, seen)
    for name in sorted(_names(function.__code__) & function.__globals__.keys()):
        yield from (name.encode(), _digest(function.__globals__[name], seen))


def _code(code: types.CodeType) -> tuple[object, ...]:
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    return (code.co_code, counts, code.co_names, code.co_varnames, code.co_freevars, code.co_consts)


def _names(code: types.CodeType) -> set[str]:
    """What the code, and the code inside it, may look up in its module."""
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return set(code.co_names).union(*map(_names, inner))


@functools.cache
def _is_installed(module: str) -> bool:
    """Whether a module is of the standard library, an installed package, or this one, whose code counts anyway."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top == "bunshin_gym":
        return True
    path = getattr(sys.modules.get(module), "__file__", None) or ""
    return any(path.startswith(sysconfig.get_path(name) + os.sep) for name in ("purelib", "platlib"))


@functools.cache
def package() -> str:
    """The content of the package's own code, shipped tasks and binaries included."""
    from bunshin_gym._native.library import binaries

    whole = hashlib.sha256(platform.python_version().encode())
    root = Path(__file__).parent
    code = [
        Path(folder, name)
        for folder, _, names in os.walk(root, followlinks=True)
        for name in names
        if not name.endswith((".pyc", ".pyo"))
    ]
    for path in [*sorted(code), *binaries()]:
        whole.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()


@functools.cache
def kernel() -> str:
    """The running kernel, by name."""
    system = os.uname()
    return f"{system.sysname} {system.release} {system.version} {system.machine}"


@functools.cache
def processor() -> str:
    """The processor's model, and a digest of what it says that it can do."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    told = sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))})
    model = next((line.partition(":")[2].strip() for line in told if line.startswith("model name")), "processor")
    return f"{model} {hashlib.sha256(chr(10).join(told).encode()).hexdigest()[:12]}"


def _machine() -> str:
    """The machine as programs in a workspace see it; whether root is real root is a part of that."""
    told = (kernel(), processor(), os.geteuid(), sorted(os.sched_getaffinity(0)))
    return hashlib.sha256(repr(told).encode("utf-8", "surrogateescape")).hexdigest()
