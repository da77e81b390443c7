"""A snapshot in a directory: forks of what was loaded are what forks of the original are; nothing else is loaded."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from contract.laws import COMMANDS, python, seen
from hypothesis import given, settings
from hypothesis import strategies as st

from bunshin_gym import Image, Snapshot, Workspace, WorkspaceError, WorkspaceSpec

pytestmark = pytest.mark.engine("native")

SPEC = WorkspaceSpec(pids_limit=128, call_timeout=60.0, hostname="saved", env={"GIVEN": "1"})

# Run by another process: it saves, and tells what its own fork says. Everything that a workspace is made of takes part.
SAVER = """
import json, sys
from contract.laws import COMMANDS, python, seen
from native.test_saved_snapshots import LOOK, SPEC, furnish
from bunshin_gym import Workspace
with Workspace(SPEC) as workspace:
    furnish(workspace)
    with workspace.snapshot() as snapshot:
        snapshot.save(sys.argv[1])
        (fork,) = snapshot.fork(1)
    with fork:
        said = [python(fork, "data, hidden.read()"), fork.digest(b"0" * 16).loose.hex()]
        said += [repr(seen(fork.run(command))) for command in (*LOOK, *COMMANDS)]
print(json.dumps(said))
"""

LOOK = (
    "pwd; echo $A $B $GIVEN; f 3; hostname; umask; jobs",
    "cat /work/d/old /work/d/link; stat -c '%n %F %a %s %h %Y' /work/d/*; ls -a /usr/share/doc 2>&1 | wc -l",
    "ls /etc/hostname /work/gone; find /work /tmp -newer /work/d/old | sort",
    "read -r -u 9 line; echo $line; read -r line < /dev/shm/shared; echo $line; kill -0 %1 && echo alive",
)


def furnish(workspace: Workspace) -> None:
    """Shell, files of every kind, processes, memory, descriptors, queued data."""
    workspace.run(
        "mkdir d; echo old > d/old; ln d/old d/link; ln -s old d/soft; mkfifo d/fifo; truncate -s 5M d/sparse"
    )
    workspace.run("echo end >> d/sparse; chmod 4711 d/old; : > gone; rm gone /etc/hostname; mkdir d/in")
    workspace.run("touch -d 2001-02-03T04:05:06Z d/*")
    workspace.run("cd d; export A=1; B=two; f() { echo f$1; }; umask 027; echo shared > /dev/shm/shared")
    workspace.run("mkfifo /tmp/p; exec 9<>/tmp/p; echo queued >&9; sleep 600 &")
    with workspace.snapshot():  # several layers, and pages in several stores
        pass
    python(workspace, "import tempfile; hidden = tempfile.TemporaryFile('w+'); hidden.write('deleted'); hidden.seek(0)")
    python(workspace, "data = {'list': list(range(5)), 'bytes': b'x' * 2_000_000}; data = hash(data['bytes']) and data")
    python(workspace, "data = sorted(data), sum(data['bytes'])")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A directory that another process has saved, and what its fork said."""
    directory = tmp_path_factory.mktemp("saved") / "snapshot"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    made = subprocess.run(
        [sys.executable, "-c", SAVER, str(directory)], capture_output=True, text=True, env=environment, timeout=250
    )
    assert made.returncode == 0, made.stderr
    return directory, json.loads(made.stdout)


@pytest.fixture
def copy(saved: tuple[Path, list[str]], tmp_path: Path) -> Iterator[Path]:
    """One to be damaged."""
    shutil.copytree(
        saved[0], tmp_path / "copy", symlinks=True, ignore=lambda folder, names: [n for n in names if n == "layers"]
    )
    (tmp_path / "copy" / "layers").mkdir()
    yield tmp_path / "copy"


def two(snapshot: Snapshot) -> list[Workspace]:
    children = snapshot.fork(2)
    assert not [child for child in children if isinstance(child, WorkspaceError)], children
    return [child for child in children if isinstance(child, Workspace)]


def test_forks_in_another_process_are_what_they_were(saved: tuple[Path, list[str]]) -> None:
    directory, said = saved
    before = _tree(directory)
    with Snapshot.load(directory) as snapshot:
        assert snapshot.spec == SPEC
        first, second = two(snapshot)
    with first, second:
        for fork in (first, second):  # one after the other: neither sees what the other did
            told = [python(fork, "data, hidden.read()"), fork.digest(b"0" * 16).loose.hex()]
            told += [repr(seen(fork.run(command))) for command in (*LOOK, *COMMANDS)]
            assert told == said
        for number in range(18):  # more layers than are kept: they are merged with the saved one
            first.run(f"echo {number} >> d/count; rm -f d/soft")
            first.snapshot().close()
        (child,) = first.fork(1)
        with child:  # type: ignore[union-attr]
            assert child.run("tail -n 1 count; cat old; ls").output == first.run("tail -n 1 count; cat old; ls").output  # type: ignore[union-attr]
    assert _tree(directory) == before


def _tree(directory: Path) -> list[tuple[str, int, int]]:
    return sorted(
        (str(path.relative_to(directory)), path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in directory.rglob("*")
    )


def _rewrite(directory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """What a snapshot says of itself, changed, with a digest that fits."""
    text, _, _ = (directory / "snapshot.json").read_text().removesuffix("\n").rpartition("\n")
    known = json.loads(text)
    change(known)
    text = json.dumps(known)
    (directory / "snapshot.json").write_text(f"{text}\n{hashlib.sha256(text.encode()).hexdigest()}\n")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda known: known["made_on"].update(kernel="Linux 5.15"), "another kernel \\(Linux 5.15\\)"),
        (lambda known: known["made_on"].update(processor="other"), "another processor \\(other\\)"),
        (lambda known: known["made_on"].update(package="other"), "another package"),
        (lambda known: known["made_on"].update(user="7"), "another user \\(7\\)"),
        (lambda known: known["made_on"].update(boot="other"), "the machine was started anew"),
        (lambda known: known.update(image="other"), "another image"),
        (lambda known: known.update(format=2), "format 2"),
        (lambda known: known.update(layers="other"), "the files of its layers"),
    ],
)
def test_what_was_made_on_something_else_is_refused_by_name(
    copy: Path, change: Callable[[dict[str, Any]], object], why: str
) -> None:
    _rewrite(copy, change)
    with pytest.raises(WorkspaceError, match=f"cannot load the snapshot {copy}: .*{why}"):
        Snapshot.load(copy)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_damaged_one_is_refused_by_name(saved: tuple[Path, list[str]], data: st.DataObject) -> None:
    directory = saved[0].with_name("damaged")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    (directory / "layers").symlink_to(saved[0] / "layers")
    names = sorted(path.name for path in saved[0].iterdir() if path.is_file())
    for name in names:
        os.link(saved[0] / name, directory / name)
    name = data.draw(st.sampled_from(names))
    whole = (directory / name).read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    (directory / name).unlink()
    if kind := data.draw(st.sampled_from(["flip", "cut", ""])):
        flipped = bytes([whole[at] ^ data.draw(st.integers(1, 255))])
        (directory / name).write_bytes(whole[:at] + (flipped + whole[at + 1 :] if kind == "flip" else b""))
    with pytest.raises(WorkspaceError, match=f"cannot load the snapshot {directory}: .*"):
        Snapshot.load(directory)


def test_another_image_must_be_given_again(tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    shown.mkdir()
    (shown / "file").write_text("shown\n")
    image = Image.host(expose=[shown])
    with Workspace(WorkspaceSpec(image=image)) as workspace, workspace.snapshot() as snapshot:
        snapshot.save(tmp_path / "snapshot")
    with pytest.raises(WorkspaceError, match="another image"):
        Snapshot.load(tmp_path / "snapshot")
    with Snapshot.load(tmp_path / "snapshot", image) as snapshot:
        first, second = two(snapshot)
    with first, second:
        assert first.run(f"cat {shown}/file").output == "shown\n"


def test_it_is_saved_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "full" / "in").mkdir(parents=True)
    with Workspace() as workspace, workspace.snapshot() as snapshot:
        for target in (tmp_path / "full", tmp_path / "no" / "where"):
            with pytest.raises(WorkspaceError, match=f"cannot save the snapshot to {target}"):
                snapshot.save(target)
        assert workspace.run("echo on").output == "on\n"
    assert [path.name for path in tmp_path.iterdir()] == ["full"]
    with Workspace(engine="dummy") as other, other.snapshot() as held, pytest.raises(WorkspaceError, match="in memory"):
        held.save(tmp_path / "dummy")
    with pytest.raises(WorkspaceError, match="cannot load the snapshot"):
        Snapshot.load(tmp_path / "nowhere")
