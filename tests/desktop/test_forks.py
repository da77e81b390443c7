"""A fork of a live desktop shows the same screen at once, and goes its own way from there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bunshin_gym.desktop import Desktop
from bunshin_gym.workspace import Snapshot

from .conftest import difference, launch, rest, same, shows

Fork = Callable[[Snapshot, int], list[Desktop]]


def go_separate_ways(source: Desktop, fork: Fork, act: Callable[[Desktop, int], None], blinks: bool = False) -> None:
    """The law: equal at once, then apart, and back to the pixel; for a child, a grandchild, and the source itself."""
    before = rest(source)
    with source.workspace.snapshot() as snapshot:
        children = fork(snapshot, 3)
        for child in (source, *children):
            assert shows(child, before, blinks), "a fork does not show the same screen at once"
        for number, child in enumerate(children):
            act(child, number)
        act(source, 7)
        pictures = [rest(child) for child in (source, *children)]
        for number, picture in enumerate(pictures):
            assert difference(picture, before), f"{number} takes no notice of what is done to it"
            assert all(difference(picture, other) for other in pictures[:number])
        (untouched,) = fork(snapshot, 1)
        assert shows(untouched, before, blinks)
        source.workspace.restore(snapshot)
        assert shows(source, before, blinks), "rollback does not bring the picture back"
        # The same things done to equal states lead to equal pictures: source, second fork and first child agree.
        act(source, 0)
        act(untouched, 0)
        assert same(source, children[0], blinks)
        assert same(untouched, children[0], blinks)
    with children[0].workspace.snapshot() as later:
        (grandchild,) = fork(later, 1)
        assert same(grandchild, children[0], blinks)
        act(grandchild, 5)
        assert not same(grandchild, children[0], blinks)


@pytest.mark.parametrize("program", ["xterm", "mousepad", pytest.param("featherpad", marks=pytest.mark.thorough)])
def test_unsaved_text(desktop: Desktop, forked: Fork, program: str) -> None:
    launch(desktop, program)
    desktop.use("type", text="not saved: žluťoučký kůň\n")
    go_separate_ways(
        desktop, forked, lambda child, number: write(child, f"the way of {number}"), program == "featherpad"
    )


def write(desktop: Desktop, text: str) -> None:
    assert desktop.use("type", text=text).ok


def stroke(desktop: Desktop, number: int) -> None:
    """Go on with the line, to a place of one's own, and let go."""
    assert desktop.use("move", x=420 + 12 * number, y=330 - 15 * number).ok
    assert desktop.use("mouse_up").ok


def test_a_drawing_in_the_middle_of_a_stroke(desktop: Desktop, forked: Fork) -> None:
    """With the button down: the fork's pointer still draws."""
    launch(desktop, "mtpaint")
    desktop.use("drag", path=[{"x": 120, "y": 9}, {"x": 640, "y": 420}])  # the settings lie above the brush
    desktop.use("click", x=18, y=99)
    desktop.use("move", x=380, y=250)
    desktop.use("mouse_down")
    desktop.use("move", x=400, y=300)
    go_separate_ways(desktop, forked, stroke)


def test_a_file_manager_with_a_selected_file(desktop: Desktop, forked: Fork) -> None:
    for name in ("apple", "pear", "quince"):
        desktop.workspace.write_file(f"/work/{name}.txt", name.encode())
    launch(desktop, "pcmanfm")
    desktop.use("keypress", keys=["HOME"])

    def rename(child: Desktop, number: int) -> None:
        child.use("keypress", keys=["F2"])
        child.use("keypress", keys=["CTRL", "A"])
        child.use("type", text=f"number-{number}.txt\n")
        child.use("wait", ms=700)  # it tells about changes of a folder a while after they were made
        assert child.workspace.run(f"ls /work/number-{number}.txt").ok

    before = rest(desktop)
    with desktop.workspace.snapshot() as snapshot:
        children = forked(snapshot, 2)
        for number, child in enumerate(children):
            rename(child, number)
            listed = child.workspace.run("ls /work").output.split()
            assert f"number-{number}.txt" in listed and len(listed) == 3
            assert difference(rest(child), before)
        assert not same(*children)
        assert not difference(desktop.screenshot(), before)
        # A change made behind its back reaches the fork's window: its inotify watches went along.
        desktop.workspace.write_file("/work/zebra.txt", b"")
        desktop.use("wait", ms=1500)
        assert difference(rest(desktop), before)
        desktop.workspace.restore(snapshot)
        assert not difference(desktop.screenshot(), before)


def test_windows_focus_and_both_selections(desktop: Desktop, forked: Fork) -> None:
    """What is selected in one window is pasted into another, in each fork: PRIMARY by the middle button, CLIPBOARD."""
    desktop.launch("mousepad /work/copy", "mousepad")
    launch(desktop, "xterm")
    write(desktop, "cat > /work/pasted\n")
    desktop.use("keypress", keys=["ALT", "TAB"])
    write(desktop, "chosen")
    desktop.use("keypress", keys=["CTRL", "A"])
    desktop.use("keypress", keys=["CTRL", "C"])
    windows = desktop.windows()
    with desktop.workspace.snapshot() as snapshot:
        for number, child in enumerate(forked(snapshot, 2)):
            assert child.windows() == windows
            child.use("click", x=500, y=570, button="middle")  # PRIMARY, into the terminal
            rest(child)
            child.use("keypress", keys=["CTRL", "D"])
            child.use("keypress", keys=["CTRL", "D"])
            child.use("wait", ms=200)
            assert child.workspace.read_file("/work/pasted") == b"chosen"
            child.use("keypress", keys=["ALT", "TAB"])
            child.use("keypress", keys=["CTRL", "END"])
            write(child, f" in {number}: ")
            child.use("keypress", keys=["CTRL", "V"])  # CLIPBOARD, into the editor
            child.use("keypress", keys=["CTRL", "S"])
            child.use("wait", ms=300)
            assert child.workspace.read_file("/work/copy").decode().strip() == f"chosen in {number}: chosen"


def test_a_terminal_in_the_middle_of_a_command_line(desktop: Desktop, forked: Fork) -> None:
    launch(desktop, "xterm")
    write(desktop, "x=41; echo $((x")
    with desktop.workspace.snapshot() as snapshot:
        for number, child in enumerate(forked(snapshot, 3)):
            write(child, f" + {number})) > /work/sum\n")
            assert child.workspace.read_file("/work/sum") == b"%d\n" % (41 + number)


def test_a_desktop_of_many_programs_over_generations(desktop: Desktop, forked: Fork) -> None:
    for program in ("xterm", "mousepad", "pcmanfm", "mtpaint"):
        launch(desktop, program)
    windows = desktop.windows()
    current = desktop
    for generation in range(3):
        before = rest(current)
        with current.workspace.snapshot() as snapshot:
            (child,) = forked(snapshot, 1)
        assert not difference(child.screenshot(), before)
        assert child.windows() == windows
        child.use("keypress", keys=["ALT", "TAB"])
        write(child, f"g{generation}")
        assert difference(rest(child), before)
        current = child
