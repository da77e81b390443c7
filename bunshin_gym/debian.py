"""A Debian root file system, made once by debootstrap and kept in the user's cache.

The mirror is the one the machine's own apt uses, asked for at run time. The root gets the machine's resolver and its
certificates (for pip; on a path of their own, so that they outlive a package that brings others).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from bunshin_gym.errors import ImageError
from bunshin_gym.image import cache_directory

__all__ = ["mirror", "root", "with_mirror"]

PLACEHOLDER = "mirror.example"
PACKAGES = ("python3", "git", "procps")
CERTIFICATES = "/etc/ssl/machine-certificates.pem"


def mirror(suite: str = "bookworm") -> str:
    """The address of the mirror from which the machine's apt takes `suite`. Raises ImageError where there is none."""
    try:
        listed = subprocess.run(
            ["apt-get", "indextargets", "--format", "$(SITE)|$(RELEASE)|$(COMPONENT)", "Created-By: Packages"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise ImageError(
            f"cannot find a Debian mirror: apt-get does not say where it takes packages: {error}"
        ) from error
    sites = [line.split("|")[0] for line in listed.splitlines() if line.split("|")[1:] == [suite, "main"]]
    if not sites:
        raise ImageError(f"cannot find a Debian mirror: this machine's apt has no source for {suite} main")
    return sites[0].rstrip("/")


def with_mirror(command: str, address: str) -> str:
    """`command` with the real mirror in place of the placeholder that recorded commands hold."""
    parts = urlsplit(address)
    command = command.replace(f"http://{PLACEHOLDER}/debian", address)
    return command.replace(PLACEHOLDER, parts.netloc + parts.path.removesuffix("/debian"))


def root(suite: str = "bookworm") -> Path:
    """A folder with a minimal Debian root: python3, git, apt. Made where it is not in the cache (about a minute).

    Raises ImageError, which says what is missing, where it can be neither found nor made.
    """
    folder = cache_directory() / f"debian-{suite}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"debian-{suite}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _make(folder, suite)
    return folder


def _make(folder: Path, suite: str) -> None:
    debootstrap = shutil.which("debootstrap") or shutil.which("debootstrap", path="/usr/sbin:/sbin")
    if debootstrap is None:
        raise ImageError("cannot make a Debian root: debootstrap is missing (Debian: apt-get install debootstrap)")
    if os.geteuid() != 0:
        raise ImageError(
            f"cannot make a Debian root: debootstrap needs root; run this once as root, or put one in {folder}"
        )
    address = mirror(suite)
    print(f"making a Debian root in {folder} (once, about a minute)", file=sys.stderr)
    made = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        log = made.with_name(made.name + ".log")
        try:
            with log.open("wb") as output:
                subprocess.run(
                    [debootstrap, "--variant=minbase", f"--include={','.join(PACKAGES)}", suite, str(made), address],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    check=True,
                )
        except subprocess.CalledProcessError as error:
            last = log.read_text(errors="replace").strip().splitlines()[-1:]
            raise ImageError(f"cannot make a Debian root: debootstrap failed: {' '.join(last)}") from error
        finally:
            log.unlink(missing_ok=True)
        _furnish(made)
        made.chmod(0o755)
        made.rename(folder)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _furnish(folder: Path) -> None:
    """What a fresh root needs of the machine's to reach the registries the machine reaches."""
    resolver = Path("/etc/resolv.conf")
    if resolver.exists():
        _write(folder / "etc/resolv.conf", resolver.read_text())
    hosts = folder / "etc/hosts"
    if not hosts.exists():
        _write(hosts, "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n")
    candidates = (os.environ.get("SSL_CERT_FILE"), ssl.get_default_verify_paths().cafile)
    bundle = next((Path(path) for path in candidates if path and Path(path).is_file()), None)
    if bundle is not None:
        (folder / "etc/ssl").mkdir(exist_ok=True)
        shutil.copyfile(bundle, folder / CERTIFICATES.lstrip("/"))
        _write(folder / "etc/pip.conf", f"[global]\ncert = {CERTIFICATES}\n")


def _write(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    path.write_text(text)
