"""Mounts made inside a workspace whose root may do that: what is refused, by name, and what a filter still forbids."""

from __future__ import annotations

import pytest

from bunshin_gym import UnsupportedResource, Workspace, WorkspaceSpec

pytestmark = pytest.mark.engine("native")
ABLE = WorkspaceSpec(engine="native", capabilities="all")


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ("mount -t tmpfs one /mnt/a && mount -t tmpfs two /mnt/a", "another was made on top of it"),
        ("mount -t tmpfs one /mnt/a && mkdir /mnt/a/b && touch /mnt/a/b/c && mount -t tmpfs two /mnt/a/b", "it hides"),
        ("mount --bind /usr/bin /mnt/a && umount -l /usr", "was taken away"),
        ("mount -o remount,noexec,bind,ro /usr", "was changed"),
        ("mount -t mqueue queues /mnt/a", "mqueue"),
        ("mount -t tmpfs one /mnt/a && mount --make-shared /mnt/a", "shared with others"),
    ],
)
def test_what_cannot_be_made_again_is_refused_and_the_source_runs_on(made: str, words: str) -> None:
    with Workspace(ABLE) as workspace:
        workspace.run("mkdir -p /mnt/a")
        result = workspace.run(made)
        assert result.exit_code == 0, result.output
        with pytest.raises(UnsupportedResource, match=words):
            workspace.snapshot()
        assert workspace.run("echo still here").output == "still here\n"


def test_once_it_is_unmounted_the_workspace_forks_again() -> None:
    with Workspace(ABLE) as workspace:
        made = workspace.run("mkdir -p /mnt/a && mount -t mqueue queues /mnt/a")
        assert made.exit_code == 0, made.output
        with pytest.raises(UnsupportedResource):
            workspace.snapshot()
        assert workspace.run("umount /mnt/a").exit_code == 0
        with workspace.snapshot() as snapshot:
            (child,) = snapshot.fork(1)
            assert isinstance(child, Workspace)
            with child:
                assert child.run("echo well").output == "well\n"


@pytest.mark.parametrize("capabilities", ["none", "container"])
def test_nobody_mounts_without_the_capability(capabilities: str) -> None:
    with Workspace(WorkspaceSpec(engine="native", capabilities=capabilities)) as workspace:  # type: ignore[arg-type]
        assert workspace.run("mkdir -p /mnt/a; mount -t tmpfs one /mnt/a").exit_code != 0


def test_what_is_read_only_stays_so() -> None:
    """The machine's own programs lie in /usr: nobody inside may make that writable."""
    with Workspace(ABLE) as workspace:
        for words in ("remount,rw", "remount,rw,bind"):
            assert workspace.run(f"mount -o {words} /usr").exit_code != 0
        workspace.run("mkdir -p /mnt/a && mount --bind /usr /mnt/a")
        assert workspace.run("mount -o remount,rw,bind /mnt/a").exit_code != 0
        assert workspace.run("touch /mnt/a/x").exit_code != 0
