"""Leaf paths: every field of Request has one, and what is set is active."""

from __future__ import annotations

import msgspec
import pytest

from logproof.ir.leaves import MESSAGE_FEATURES, active_leaves, leaf_paths, without
from logproof.ir.message import (
    ImagePart,
    Message,
    Opaque,
    OpaquePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    features,
    text_message,
)
from logproof.ir.request import Input, Request, Sampling, Schedule, Scoring

BLOB = Opaque("d", "k", "b")


def fields_of(record: type[msgspec.Struct]) -> list[str]:
    return [f.name for f in msgspec.structs.fields(record)]


def test_every_field_of_every_group_is_a_leaf() -> None:
    expected = ["model"]
    for field in msgspec.structs.fields(Request):
        if field.name in ("model", "options"):
            continue
        group = Input if field.name == "input" else type(field.default)
        expected += [f"{field.name}.{name}" for name in fields_of(group)]
    assert [leaf for leaf in leaf_paths() if not leaf.startswith("input.messages.")] == expected
    assert [x.removeprefix("input.messages.") for x in leaf_paths() if x.startswith("input.messages.")] == list(
        MESSAGE_FEATURES
    )
    assert len(set(leaf_paths())) == len(leaf_paths()) > 45


def test_only_what_the_caller_set_is_active_and_a_default_counts() -> None:
    request = Request(
        "m",
        Input(text="x"),
        sampling=Sampling(temperature=1.0, stop=(), n=1),
        scoring=Scoring(prompt=0),
        schedule=Schedule(stream=False),
        options={"min_p": 0.0, "a": None},
    )
    assert active_leaves(request) == {
        "model": "m",
        "input.text": "x",
        "sampling.temperature": 1.0,
        "sampling.stop": (),
        "sampling.n": 1,
        "scoring.prompt": 0,
        "schedule.stream": False,
        "options.min_p": 0.0,
        "options.a": None,
    }
    assert active_leaves(Request("m", Input(text=""))) == {"model": "m", "input.text": ""}


def test_features_of_messages_are_leaves_of_their_own() -> None:
    messages = (text_message("system", "s"), text_message("user", "u"))
    assert active_leaves(Request("m", Input(messages=messages))) == {
        "model": "m",
        "input.messages": messages,
        "input.messages.system": 1,
    }


@pytest.mark.parametrize(
    ("part", "found"),
    [
        (TextPart("x"), {}),
        (TextPart("x", BLOB), {"opaque": 1}),
        (ImagePart(url="u"), {"image": 1}),
        (ImagePart(url="u", detail="low"), {"image": 1, "image_detail": 1}),
        (ToolCallPart("i", "f", "{}"), {"tool_call": 1}),
        (ToolCallPart("i", "f", "{}", BLOB), {"tool_call": 1, "opaque": 1}),
        (ToolResultPart("i", "r"), {"tool_result": 1}),
        (ToolResultPart("i", "r", is_error=False), {"tool_result": 1}),
        (ToolResultPart("i", "r", is_error=True), {"tool_result": 1, "tool_error": 1}),
        (ReasoningPart("x"), {"reasoning": 1}),
        (ReasoningPart("x", BLOB), {"reasoning": 1, "opaque": 1}),
        (OpaquePart(BLOB), {"opaque": 1}),
    ],
)
def test_the_features_of_a_part(part: Part, found: dict[str, int]) -> None:
    assert features((Message("user", (part,)),)) == found


def test_the_features_of_a_message() -> None:
    assert features((Message("assistant", None, name="ann"),)) == {"name": 1, "null_content": 1, "prefill": 1}
    assert features((Message("assistant", ()), text_message("user", "x"))) == {}
    assert features((text_message("developer", "x"), text_message("tool", "y"))) == {"developer": 1, "tool": 1}
    assert features(()) == {}


def test_a_message_joins_its_texts() -> None:
    assert Message("user", (TextPart("a"), ImagePart(url="u"), TextPart("b"))).text == "ab"
    assert Message("assistant", None).text == ""


def test_without_unsets_fields_and_options_and_nothing_else() -> None:
    request = Request(
        "m", Input(text="a", suffix="b"), sampling=Sampling(seed=1, n=2), options={"min_p": 0.1, "user": "u"}
    )
    left = without(request, ["sampling.seed", "options.min_p", "input.suffix", "model", "input.messages.image"])
    assert left == Request("m", Input(text="a"), sampling=Sampling(n=2), options={"user": "u"})
