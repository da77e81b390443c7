"""Builds the C libraries and the workspaces' init together with the package.

A wheel carries these files in bunshin_gym/_native/. An editable install leaves them in native/build/, where
the loader looks second, so that `make native` is all it takes to try a change in C.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent.resolve()
BINARIES = ("libbunshin.so", "bunshin-init", "libbunshin-frozen.so")


def build_native() -> Path:
    """Run the C build and return the folder that holds its results."""
    make = os.environ.get("MAKE") or shutil.which("make")
    if make is None:
        raise SystemExit("cannot build bunshin_gym: make is missing (Debian: apt-get install make gcc)")
    subprocess.run([make, "-C", str(ROOT / "native")], check=True)
    return ROOT / "native" / "build"


class BuildWithNative(build_py):
    """build_py, and the binaries beside the Python files."""

    def run(self) -> None:
        super().run()
        built = build_native()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / "bunshin_gym" / "_native"
        target.mkdir(parents=True, exist_ok=True)
        for name in BINARIES:
            shutil.copy2(built / name, target / name)


class PlatformWheel(bdist_wheel):
    """The library is loaded with ctypes: any Python 3, but one platform."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self) -> tuple[str, str, str]:
        _, _, platform = super().get_tag()
        return "py3", "none", platform


class BinaryDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return True


setup(cmdclass={"build_py": BuildWithNative, "bdist_wheel": PlatformWheel}, distclass=BinaryDistribution)
