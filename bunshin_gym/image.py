"""Images: the read-only layers a workspace starts from, and how they become the mounts of a new root.

An image is a list of mount points, each with its lower directories. The root is an overlay that can be written; other
mount points (the host image has /usr) are read-only, except while an image is built on them.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Self

from bunshin_gym.errors import ImageError

__all__ = ["Image", "MountPoint", "cache_directory", "state_parent"]

# Parts of /etc that a toolchain needs. A list of what may be seen, not of what may not: a secret that nobody thought of
# stays outside.
_ETC = [
    "alternatives", "bash.bashrc", "bash_completion.d", "ca-certificates", "ca-certificates.conf", "debian_version",
    "dpkg", "fonts", "gai.conf", "groff", "host.conf", "inputrc", "issue", "java-11-openjdk", "java-17-openjdk",
    "java-21-openjdk", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias", "locale.conf", "locale.gen",
    "localtime", "login.defs", "lsb-release", "magic", "magic.mime", "mailcap", "manpath.config", "maven",
    "mime.types", "mke2fs.conf", "networks", "nsswitch.conf", "openal", "os-release", "perl", "profile", "profile.d",
    "protocols", "python3", "python3.11", "python3.12", "python3.13", "redhat-release", "rpc", "sensors3.conf",
    "services", "sgml", "shells", "skel", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone", "vim", "wgetrc",
    "X11", "xdg", "xml", "xattr.conf", "gtk-2.0", "gtk-3.0", "gdb", "glvnd", "netconfig", "ethertypes", "R", "texmf",
    "emacs", "chromium", "chromium.d", "dconf",
]  # fmt: skip

# Elsewhere: what programs would make anew at every start where it is missing.
_CACHES = ["/var/cache/fontconfig"]

_SKELETON = [
    ("dev", 0o755), ("proc", 0o555), ("sys", 0o555), ("run", 0o755), ("run/bunshin", 0o755), ("run/lock", 0o1777),
    ("tmp", 0o1777), ("var", 0o755), ("var/tmp", 0o1777), ("var/lib", 0o755), ("var/log", 0o755), ("var/cache", 0o755),
    ("root", 0o700), ("home", 0o755), ("etc", 0o755), ("usr", 0o755), ("opt", 0o755), ("mnt", 0o755), ("srv", 0o755),
    ("work", 0o755),
]  # fmt: skip


@dataclass(frozen=True)
class MountPoint:
    """One mount of an image: where, from which directories (top first), and whether it can be written.

    `buildable`: whether set-up commands of Image.build() may write there.
    """

    path: str
    lowers: tuple[str, ...]
    writable: bool = True
    buildable: bool = True

    def for_building(self) -> MountPoint:
        """The same mount, writable if set-up commands may write there."""
        return replace(self, writable=self.buildable)

    @property
    def key(self) -> str:
        """The name of this mount point's part of an upper layer."""
        return self.path.strip("/").replace("/", "-") or "root"


def state_parent() -> Path:
    """Where workspaces keep their layers: BUNSHIN_STATE_DIR, else /var/tmp or the temporary directory.

    Of the two, the one where directories are made faster: every fork makes a handful, and on a large file system that
    is nearly full the same call takes 0.01 ms below one directory and 0.3 ms below another.
    """
    if chosen := os.environ.get("BUNSHIN_STATE_DIR"):
        return Path(chosen)
    return _fastest(tempfile.gettempdir(), "/var/tmp")


@functools.cache
def _fastest(*candidates: str) -> Path:
    costs = []
    for candidate in candidates:
        try:
            with tempfile.TemporaryDirectory(prefix="bunshin-probe-", dir=candidate) as probe:
                began = time.perf_counter()
                for number in range(12):
                    os.mkdir(f"{probe}/{number}")
                costs.append((time.perf_counter() - began, candidate))
        except OSError:
            continue
    # The first candidate is the usual one: it is left only for a clear gain.
    if len(costs) == 2 and costs[0][0] < 2 * costs[1][0]:
        return Path(costs[0][1])
    return Path(min(costs)[1]) if costs else Path(candidates[0])


def cache_directory() -> Path:
    """Where built images are kept: BUNSHIN_CACHE_DIR, else the user's cache directory."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "bunshin"
    return Path(os.environ.get("BUNSHIN_CACHE_DIR") or default)


class Image:
    """What a workspace starts from. Make one with host(), directory() or build(); `digest` names its content."""

    def __init__(self, digest: str, mounts: Callable[[Path], tuple[MountPoint, ...]], description: str) -> None:
        self.digest = digest
        self._mounts = mounts
        self._description = description

    @classmethod
    def host(cls, expose: Sequence[str | os.PathLike[str]] = ()) -> Self:
        """The machine's own toolchain: /usr and /opt, and the harmless part of /etc. No homes, keys or sockets.

        `expose` names further directories of the machine, shown read-only under their own path.
        """
        shown = tuple(str(Path(path).resolve()) for path in expose)
        for path in shown:
            if not Path(path).is_dir():
                raise ImageError(f"cannot expose {path}: it is not a directory")
        identity = [
            _stamp("/usr/bin"),
            _stamp("/usr/lib"),
            _stamp("/var/lib/dpkg/status"),
            _stamp("/etc/os-release"),
            *shown,
        ]
        return cls(_digest("host", *identity), lambda state: _host_mounts(state, shown), "host")

    @classmethod
    def directory(cls, path: str | os.PathLike[str]) -> Self:
        """A root file system that lies in a directory (for instance one made by debootstrap). It is not changed."""
        root = Path(path).resolve()
        if not root.is_dir():
            raise ImageError(f"cannot use {root} as an image: it is not a directory")
        for name in ("proc", "dev", "tmp"):
            if not (root / name).is_dir():
                raise ImageError(f"cannot use {root} as an image: it has no directory /{name}")
        mounts = (MountPoint("/", (str(root),)),)
        return cls(_digest("directory", str(root), _stamp(root)), lambda _: mounts, f"directory {root}")

    @classmethod
    def build(
        cls, base: Image, commands: Sequence[str], network: Literal["none", "host"] = "host", timeout: float = 1800.0
    ) -> Self:
        """Run set-up commands once in a workspace on `base`, and keep what they wrote as a layer.

        The layer is cached by the content of what made it (base, commands, network). Each command runs in a fresh
        `bash -c` as root inside, with the capabilities of a container. Raises ImageError where one fails, with its
        output. `timeout`: seconds a command may take.
        """
        digest = _digest("build", base.digest, network, *commands)
        layer = _build(base, tuple(commands), network, timeout, digest)

        def mounts(state: Path) -> tuple[MountPoint, ...]:
            return tuple(_with_layer(point, layer) for point in base.mounts(state))

        return cls(digest, mounts, f"build on {base._description}")

    def mounts(self, state: Path) -> tuple[MountPoint, ...]:
        """The image's mount points, the root first. `state` is a directory of the owner for what has to be made."""
        return self._mounts(state)

    def __repr__(self) -> str:
        return f"<Image {self._description} {self.digest[:12]}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Image) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _stamp(path: str | Path) -> str:
    try:
        info = os.stat(path)
    except OSError:
        return "absent"
    return f"{info.st_dev}:{info.st_ino}:{info.st_mtime_ns}"


# ---- the host image

_skeleton_lock = threading.Lock()


def _host_mounts(state: Path, shown: tuple[str, ...]) -> tuple[MountPoint, ...]:
    lowers = [str(_skeleton(state))]
    if shown:  # places for what is exposed, in a layer of their own: the skeleton is shared
        places = state / f"exposed-{_digest(*shown)[:16]}"
        for path in shown:
            (places / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
        lowers.insert(0, str(places))
    ours = os.geteuid() == 0  # what real root owns cannot be written in the namespace of an ordinary user
    points = [MountPoint("/", tuple(lowers)), MountPoint("/usr", ("/usr",), writable=False, buildable=ours)]
    if os.path.isdir("/opt") and os.listdir("/opt"):
        points.append(MountPoint("/opt", ("/opt",), writable=False, buildable=ours))
    points += [MountPoint(path, (path,), writable=False, buildable=False) for path in shown]
    return tuple(points)


def _skeleton(state: Path) -> Path:
    """The root of the host image without its mounts. Made once for a state of the machine's /etc, and kept."""
    with _skeleton_lock:
        name = f"host-{_digest(*_etc_state())[:32]}"
        for parent in (cache_directory(), state):
            skeleton = parent / name
            if skeleton.is_dir():
                return skeleton
            try:
                parent.mkdir(parents=True, exist_ok=True)
                making = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=parent))
                _make_skeleton(making)
                with contextlib.suppress(OSError):  # somebody else was faster: theirs is the same
                    making.rename(skeleton)
                if making.exists():
                    shutil.rmtree(making, ignore_errors=True)
                if skeleton.is_dir():
                    return skeleton
            except OSError:
                if parent == state:
                    raise  # the cache may be out of reach; the state directory is ours
        raise ImageError(f"cannot prepare the host image below {state}")


def _etc_state() -> Iterator[str]:
    """What the skeleton depends on: every entry that is copied, with its time, size and kind."""
    yield str(_SKELETON)
    pending = [Path("/etc", name) for name in (*_ETC, "passwd", "group")] + [Path("/", name) for name in _ROOT_LINKS]
    pending += map(Path, _CACHES)
    while pending:
        path = pending.pop()
        try:
            info = path.lstat()
            yield f"{path} {info.st_mode} {info.st_size} {info.st_mtime_ns}"
            if stat.S_ISDIR(info.st_mode):
                pending += sorted(Path(entry.path) for entry in os.scandir(path))
        except OSError:
            continue  # absent, or not ours to see


_ROOT_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


def _make_skeleton(root: Path) -> None:
    root.chmod(0o755)
    for name, mode in _SKELETON:
        (root / name).mkdir()
        (root / name).chmod(mode)
    for name in _ROOT_LINKS:
        source = Path("/", name)
        if source.is_symlink():
            (root / name).symlink_to(os.readlink(source))
        elif source.is_dir():
            raise ImageError(f"the host image needs a merged /usr, but /{name} is a directory; use Image.directory()")
    (root / "var" / "run").symlink_to("/run")
    etc = root / "etc"
    for name in _ETC:
        _copy(Path("/etc", name), etc / name)
    for path in _CACHES:
        _copy(Path(path), root / path.lstrip("/"))
    (etc / "hosts").write_text("127.0.0.1 localhost bunshin\n::1 localhost ip6-localhost\n")
    (etc / "hostname").write_text("bunshin\n")
    (etc / "resolv.conf").write_text("")
    (etc / "mtab").symlink_to("/proc/self/mounts")
    _copy_accounts(etc)


def _copy_accounts(etc: Path) -> None:
    """System accounts only, so that files of theirs have names; no people, no passwords."""
    for name, identity in (("passwd", 2), ("group", 2)):
        lines = []
        for line in Path("/etc", name).read_text(errors="replace").splitlines():
            fields = line.split(":")
            if (
                len(fields) > identity
                and fields[identity].isdigit()
                and (int(fields[identity]) < 1000 or fields[0] in ("nobody", "nogroup"))
            ):
                fields[1] = "*" if name == "passwd" else "x"
                if name == "group":
                    fields[3:] = [""]
                lines.append(":".join(fields))
        (etc / name).write_text("\n".join(lines) + "\n")


def _copy(source: Path, target: Path) -> None:
    try:
        info = source.lstat()
        target.parent.mkdir(parents=True, exist_ok=True)
        if stat.S_ISLNK(info.st_mode):
            target.symlink_to(os.readlink(source))
        elif stat.S_ISDIR(info.st_mode):
            target.mkdir(exist_ok=True)
            for entry in os.scandir(source):
                _copy(Path(entry.path), target / entry.name)
        elif stat.S_ISREG(info.st_mode):
            shutil.copyfile(source, target)
            target.chmod(stat.S_IMODE(info.st_mode) & 0o755 | 0o444)
    except (FileNotFoundError, PermissionError):
        return  # absent on this machine, or not ours to see


# ---- built images


@dataclass
class _BuiltLayers:
    lock: threading.Lock = field(default_factory=threading.Lock)


_built = _BuiltLayers()


def _with_layer(point: MountPoint, layer: Path) -> MountPoint:
    part = layer / point.key
    if not part.is_dir() or not os.listdir(part):
        return point
    return replace(point, lowers=(str(part), *point.lowers))


def _build(
    base: Image, commands: tuple[str, ...], network: Literal["none", "host"], timeout: float, digest: str
) -> Path:
    from bunshin_gym.engines import get
    from bunshin_gym.engines.native import NativeEngine

    store = cache_directory() / "layers"
    store.mkdir(parents=True, exist_ok=True)
    layer = store / digest
    with _built.lock, open(store / f"{digest}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if layer.is_dir():
            return layer
        engine = get("native")
        assert isinstance(engine, NativeEngine)
        engine.build_layer(base, commands, network, timeout, layer)
    return layer
