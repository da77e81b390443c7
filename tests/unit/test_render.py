from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bunshin_gym import font, render


def test_every_character_has_a_shape_of_its_own() -> None:
    glyphs = font.glyphs()
    assert glyphs.shape == (96, 16, 8)
    assert not glyphs[0].any()
    assert len({glyph.tobytes() for glyph in glyphs}) == 96


def test_a_picture_has_the_size_of_the_terminal() -> None:
    picture = render.as_picture([("", "do it"), ("ls", "a\nb\n")])
    assert picture.shape == (400, 640, 3)
    assert picture.dtype == np.uint8
    assert picture.any()
    assert not np.array_equal(picture, render.as_picture([]))


def test_the_last_lines_are_shown() -> None:
    many = [("", "\n".join(map(str, range(100))))]
    last = [("", "\n".join(map(str, range(75, 100))))]
    assert np.array_equal(render.as_picture(many), render.as_picture(last))


def test_escapes_tabs_and_returns_are_as_on_a_terminal() -> None:
    assert np.array_equal(
        render.as_picture([("", "\x1b[31mred\x1b[0m\ta\r\n10%\r100%\n\x1b]0;title\x07x")]),
        render.as_picture([("", "red     a\n100%\nx")]),
    )


def test_long_lines_are_wrapped() -> None:
    assert np.array_equal(
        render.as_picture([("", "x" * 200)]), render.as_picture([("", "\n".join(["x" * 80] * 2 + ["x" * 40]))])
    )


def test_the_transcript_as_text() -> None:
    assert render.as_text([("", "do it"), ("ls\npwd", "a\n"), ("true", "")]) == "do it\n$ ls\n> pwd\na\n$ true\n"


@given(st.lists(st.tuples(st.text(), st.text()), max_size=4))
def test_any_text_can_be_drawn(transcript: list[tuple[str, str]]) -> None:
    assert render.as_picture(transcript).shape == (400, 640, 3)
    assert isinstance(render.as_text(transcript), str)
