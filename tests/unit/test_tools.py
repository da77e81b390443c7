from __future__ import annotations

import json
import re
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bunshin_gym import InvalidToolCall, ToolCall, ToolResult
from bunshin_gym.tools import TOOLS, validate
from bunshin_gym.tools.call import clip

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.text(), st.dictionaries(st.text(), json_values, max_size=4))
def test_equal_calls_have_equal_keys_whatever_the_order(name: str, args: dict[str, object]) -> None:
    again = ToolCall(name, dict(reversed(args.items())))
    call = ToolCall(name, args)
    assert call == again
    assert hash(call) == hash(again)
    assert json.loads(call.key()) == [name, args]


def test_different_calls_differ() -> None:
    assert ToolCall("shell", {"command": "a"}) != ToolCall("shell", {"command": "a "})
    assert ToolCall("shell", {"command": "1"}) != ToolCall("shell", {"command": 1})


@pytest.mark.parametrize("args", [{"x": b"bytes"}, {"x": float("nan")}, {"x": {1, 2}}])
def test_arguments_that_are_not_json_have_no_key(args: dict[str, object]) -> None:
    with pytest.raises(InvalidToolCall):
        ToolCall("shell", args).key()


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("shell", {"command": "ls"}),
        ("shell", {"command": ""}),
        ("exec", {"argv": ["ls", "-l"]}),
        ("exec", {"command": "ls", "shell": ["bash", "-c"], "cwd": "/", "env": {"A": "1"}, "stdin": "open"}),
        ("python", {"code": "1"}),
        ("read_file", {"path": "a"}),
        ("write_file", {"path": "a", "content": "\0 is fine here"}),
    ],
)
def test_right_calls_pass(name: str, args: dict[str, object]) -> None:
    validate(ToolCall(name, args))


@pytest.mark.parametrize(
    ("name", "args", "says"),
    [
        ("nope", {}, "no tool 'nope'"),
        ("shell", {}, "lack 'command'"),
        ("shell", {"command": 3}, "must be a JSON string"),
        ("shell", {"command": "a", "x": 1}, "unknown entry 'x'"),
        ("shell", {"command": "a\0b"}, "NUL"),
        ("shell", {"command": "\ud800"}, "surrogate"),
        ("exec", {}, "either"),
        ("exec", {"argv": ["a"], "command": "a"}, "either"),
        ("exec", {"argv": ["a"], "shell": ["sh"]}, "goes with"),
        ("exec", {"argv": []}, "must not be empty"),
        ("exec", {"argv": ["a", 1]}, r"'argv'\[1\]"),
        ("exec", {"argv": ["a\0"]}, "NUL"),
        ("exec", {"command": "a", "env": {"A": 1}}, "'A'"),
        ("exec", {"command": "a", "stdin": "tty"}, "one of"),
        ("read_file", {"path": ""}, "must not be empty"),
    ],
)
def test_wrong_calls_are_told_what_is_wrong(name: str, args: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidToolCall, match=says):
        validate(ToolCall(name, args))


@given(st.sampled_from(sorted(TOOLS)), json_values)
def test_no_arguments_crash_the_check(name: str, args: object) -> None:
    try:
        TOOLS[name].validate(args)
    except InvalidToolCall as error:
        assert "\n" not in str(error).split(";")[-1]


def test_schemas_are_openai_functions_and_fresh_each_time() -> None:
    for tool in TOOLS.values():
        schema = tool.openai()
        assert schema["type"] == "function"
        assert schema["function"]["name"] == tool.name
        assert schema["function"]["parameters"]["type"] == "object"
        json.dumps(schema)
        schema["function"]["parameters"]["properties"].clear()
        assert tool.openai() != schema


def test_a_call_is_not_changed_by_what_its_maker_does_later() -> None:
    args = {"argv": ["ls"]}
    call = ToolCall("exec", args)
    key = call.key()
    args["argv"].append("-l")
    assert call.key() == key


def test_a_result_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        ToolResult("x").output = "y"  # type: ignore[misc]


@given(st.binary(max_size=400), st.integers(2, 100))
def test_clipping_keeps_head_and_tail(data: bytes, limit: int) -> None:
    kept, cut = clip(data, limit)
    assert cut == (len(data) > limit)
    if not cut:
        assert kept == data
        return
    marker = re.search(rb"\n\[\.\.\. (\d+) bytes left out \.\.\.\]\n", kept)
    assert marker
    head, tail = kept[: marker.start()], kept[marker.end() :]
    assert data.startswith(head) and data.endswith(tail)
    assert int(marker[1]) == len(data) - len(head) - len(tail)
    # All of the limit is used, but for what a character at the cut takes.
    assert limit - 6 <= len(head) + len(tail) <= limit


@given(st.text(max_size=400), st.integers(2, 100))
def test_clipping_cuts_no_character_in_two(text: str, limit: int) -> None:
    kept, _ = clip(text.encode("utf-8", "surrogatepass"), limit)
    assert (
        "\ufffd" not in kept.decode("utf-8", "replace")
        or "\ufffd" in text
        or any("\ud800" <= c <= "\udfff" for c in text)
    )
