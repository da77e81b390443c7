"""A native snapshot in a directory, for another process of the same machine.

    snapshot.json   what it is: the spec, what it was made on, sizes and digests of the rest; and its own digest
    image, store-N  the image of the processes, and their pages: what libbunshin holds in memfds
    layers/NAME     all its sealed layers as one, for each mount that can be written

Loading makes the memfds anew and uses the layers where they lie. An image means something only to the same library on
the same kernel and processor, and its clocks are those of one run of the machine: all that is compared by name.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bunshin_gym._native import NativeFailure, SnapshotHandle, encode_records
from bunshin_gym.engines.native_layers import Layer
from bunshin_gym.errors import WorkspaceError
from bunshin_gym.image import Image, MountPoint
from bunshin_gym.stamp import kernel, package, processor
from bunshin_gym.workspace import WorkspaceSpec

if TYPE_CHECKING:
    from bunshin_gym.engines.native import NativeEngine

__all__ = ["SavedSource", "load", "save"]

_FORMAT = 1
_CHUNK = 1 << 20
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


@dataclasses.dataclass(frozen=True)
class SavedSource:
    """What forks of a loaded snapshot have in common, as a workspace that was sealed would say."""

    engine: NativeEngine
    spec: WorkspaceSpec
    mounts: tuple[MountPoint, ...]


# ---- saving


def save(
    engine: NativeEngine, spec: WorkspaceSpec, mounts: Sequence[MountPoint], handle: SnapshotHandle,
    layers: Sequence[Layer], directory: Path,
) -> None:  # fmt: skip
    """Write a snapshot into a new directory. Raises WorkspaceError, leaving nothing."""
    beside = directory.parent / f".{directory.name}.{secrets.token_hex(6)}"
    try:
        if directory.is_dir() and any(directory.iterdir()):
            raise WorkspaceError(f"cannot save the snapshot to {directory}: there is something in it")
        beside.mkdir()
        try:
            with ExitStack() as stack:
                for layer in layers:
                    stack.callback(layer.hold().drop)
                _save_layers(engine, mounts, layers, beside / "layers")
                files = _save_memory(handle, beside)
            known = {
                "format": _FORMAT, "made_on": _here(), "spec": _plain(spec), "image": _image(spec).digest,
                "size": handle.size, "report": handle.report, "files": files, "layers": _survey(beside / "layers"),
            }  # fmt: skip
            text = json.dumps(known, indent=1)
            (beside / "snapshot.json").write_text(f"{text}\n{hashlib.sha256(text.encode()).hexdigest()}\n")
            beside.rename(directory)
        except BaseException:
            engine.context().remove(str(beside))
            engine.context().flush()
            raise
    except OSError as error:
        if isinstance(error, WorkspaceError):
            raise
        raise WorkspaceError(f"cannot save the snapshot to {directory}: {error.strerror}", errno=error.errno) from error
    except NativeFailure as failure:
        raise WorkspaceError(f"cannot save the snapshot to {directory}: {failure.message}") from failure


def _save_layers(engine: NativeEngine, mounts: Sequence[MountPoint], layers: Sequence[Layer], target: Path) -> None:
    target.mkdir()
    records = []
    for point in mounts:
        if point.writable:
            (target / point.key).mkdir()
            if parts := [part for layer in layers if (part := layer.part(point.key))]:
                records.append((str(target / point.key), *parts))
    engine.context().merge(encode_records(records), apart=True)


def _save_memory(handle: SnapshotHandle, target: Path) -> dict[str, list[Any]]:
    """The image and the page stores as files: the size and the digest of each, by name."""
    files: dict[str, list[Any]] = {}
    with ExitStack() as stack:
        fds = handle.export()
        for fd in fds:
            stack.callback(os.close, fd)
        for number, fd in enumerate(fds):
            name = f"store-{number - 1}" if number else "image"
            with open(target / name, "xb") as file:
                files[name] = [os.fstat(fd).st_size, _copy(fd, file.fileno())]
                os.fsync(file.fileno())
    return files


def _copy(source: int, target: int) -> str:
    """Copy a file from its beginning, leaving holes for zeros; the digest of it."""
    whole = hashlib.blake2b(digest_size=32)
    at, size = 0, os.fstat(source).st_size
    os.ftruncate(target, size)
    while at < size:
        chunk = os.pread(source, _CHUNK, at)
        if not chunk:
            break
        whole.update(chunk)
        if chunk.count(0) != len(chunk):
            rest = memoryview(chunk)
            while rest:
                rest = rest[os.pwrite(target, rest, at + len(chunk) - len(rest)) :]
        at += len(chunk)
    return whole.hexdigest()


# ---- loading


def load(engine: NativeEngine, directory: Path, image: Image | None) -> tuple[SavedSource, SnapshotHandle, Layer]:
    """What `save` wrote: for a snapshot's constructor. Raises WorkspaceError."""
    try:
        known = _read(directory / "snapshot.json")
        for name, was in known["made_on"].items():
            _compare(name, was, _here().get(name))
        spec = _spec(known["spec"], image)
        if _image(spec).digest != known["image"]:
            raise WorkspaceError(
                f"it was made on another image ({known['image'][:12]}), not on {_image(spec)}; give `image`"
            )
        if _survey(directory / "layers") != known["layers"]:
            raise WorkspaceError("the files of its layers are not the ones that were saved")
        context = engine.context()
        mounts = _image(spec).mounts(engine.state)
        with ExitStack() as stack:
            fds: list[int] = []
            for name, (size, digest) in known["files"].items():
                fds.append(os.memfd_create("bunshin-pages" if fds else "bunshin-image", os.MFD_ALLOW_SEALING))
                stack.callback(os.close, fds[-1])
                _load_memory(directory / name, size, digest, fds[-1])
            handle = context.snapshot_of(fds, known["size"], known["report"])
        layer = Layer(context, directory.resolve() / "layers", (), work=False, borrowed=True)
        return SavedSource(engine, spec, mounts), handle, layer
    except WorkspaceError as error:
        raise type(error)(f"cannot load the snapshot {directory}: {error}", errno=error.errno) from error
    except OSError as error:
        raise WorkspaceError(f"cannot load the snapshot {directory}: {error.strerror}", errno=error.errno) from error
    except NativeFailure as failure:
        raise WorkspaceError(f"cannot load the snapshot {directory}: {failure.message}") from failure


def _read(path: Path) -> dict[str, Any]:
    text, _, digest = path.read_text(errors="replace").removesuffix("\n").rpartition("\n")
    if hashlib.sha256(text.encode()).hexdigest() != digest:
        raise WorkspaceError("snapshot.json is damaged")
    known: dict[str, Any] = json.loads(text)
    if known["format"] != _FORMAT:
        raise WorkspaceError(f"it is of format {known['format']}, and this version reads {_FORMAT}")
    return known


def _load_memory(path: Path, size: int, digest: str, fd: int) -> None:
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size != size or _copy(file.fileno(), fd) != digest:
            raise WorkspaceError(f"{path.name} is damaged")
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)


# ---- what is compared


def _here() -> dict[str, str]:
    """What a snapshot depends on, by name."""
    return {
        "package": package(),
        "kernel": kernel(),
        "processor": processor(),
        "user": str(os.geteuid()),
        "boot": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
    }


def _compare(name: str, was: str, now: str | None) -> None:
    if was == now:
        return
    if name == "boot":
        raise WorkspaceError("the machine was started anew since it was made")
    raise WorkspaceError(f"it was made with another {name} ({was[:60]}), not with the one here ({str(now)[:60]})")


def _image(spec: WorkspaceSpec) -> Image:
    return spec.image if spec.image is not None else Image.host()


def _plain(spec: WorkspaceSpec) -> dict[str, Any]:
    values = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec) if field.name != "image"}
    return {
        name: {"datetime": value.isoformat()} if isinstance(value, datetime)
        else dict(value) if isinstance(value, Mapping) else value
        for name, value in values.items()
    }  # fmt: skip


def _spec(plain: Mapping[str, Any], image: Image | None) -> WorkspaceSpec:
    values = dict(plain)
    if isinstance(frozen := values.get("frozen_time"), dict):
        values["frozen_time"] = datetime.fromisoformat(frozen["datetime"])
    return WorkspaceSpec(image=image, **values)


def _survey(root: Path) -> str:
    """A digest of a directory tree: names, kinds, modes, owners, sizes, times, links; not of what is in the files."""
    whole = hashlib.sha256()
    for line in _entries(root, ""):
        whole.update(line.encode("utf-8", "surrogateescape") + b"\0")
    return whole.hexdigest()


def _entries(folder: Path, prefix: str) -> Iterator[str]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except PermissionError:  # of another user that is mapped inside
        yield f"{prefix} not ours to see"
        return
    for entry in entries:
        info = entry.stat(follow_symlinks=False)
        size = info.st_size if stat.S_ISREG(info.st_mode) else info.st_rdev
        link = os.readlink(entry.path) if entry.is_symlink() else ""
        yield f"{prefix}{entry.name} {info.st_mode} {info.st_uid} {info.st_gid} {size} {info.st_mtime_ns} {link}"
        if entry.is_dir(follow_symlinks=False):
            yield from _entries(Path(entry.path), f"{prefix}{entry.name}/")
