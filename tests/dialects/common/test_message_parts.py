"""The walk over messages that the four wires of messages share."""

from __future__ import annotations

import json

import pytest

from logproof.dialects.common.message_parts import cover, json_object, refuse, walk, without_dropped
from logproof.dialects.ledger import Decision, Ledger
from logproof.dialects.lower import lower
from logproof.dialects.registry import get_dialect
from logproof.errors import RequestRefused
from logproof.ir.facts import Facts
from logproof.ir.leaves import active_leaves
from logproof.ir.message import (
    ImagePart,
    Message,
    Opaque,
    OpaquePart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    text_message,
)
from logproof.ir.request import Input, Request

WIRES = ("openai_chat", "openai_responses", "anthropic_messages", "google_genai")
USER = text_message("user", "Hi")
FOREIGN = Opaque("elsewhere", "signature", "sealed")
ALL = (
    text_message("developer", "Be brief."),
    Message("user", (TextPart("See"), ImagePart(url="https://x.test/a.png", detail="low")), name="ann"),
    Message("assistant", (ReasoningPart("so", FOREIGN), TextPart("Yes", FOREIGN), ToolCallPart("c", "f", "{}"))),
    Message("tool", (ToolResultPart("c", "1", name="f"),)),
    Message("assistant", (OpaquePart(FOREIGN),)),
)


def ledger(messages: tuple[Message, ...], *dropped: str) -> Ledger:
    """A ledger of these messages in which features were dropped."""
    leaves = [f"input.messages.{feature}" for feature in dropped]
    made = Ledger("d", active_leaves(Request("m", Input(messages=messages))), leaves)
    for leaf in leaves:
        made.refuse(leaf, "no")
    return made


def test_faults_come_in_the_order_of_messages_and_parts() -> None:
    found = walk(ALL, lambda m: [("role", m.role)], lambda p, m: [("part", f"{m.role} {type(p).__name__}")])
    assert list(found) == [
        ("role", "developer"),
        ("part", "developer TextPart"),
        ("role", "user"),
        ("part", "user TextPart"),
        ("part", "user ImagePart"),
        ("role", "assistant"),
        ("part", "assistant ReasoningPart"),
        ("part", "assistant TextPart"),
        ("part", "assistant ToolCallPart"),
        ("role", "tool"),
        ("part", "tool ToolResultPart"),
        ("role", "assistant"),
        ("part", "assistant OpaquePart"),
    ]


def test_a_fault_refuses_the_leaf_of_its_feature() -> None:
    made = ledger(ALL)
    refuse([("image", "no images"), ("", "no messages"), ("prefill", "not last")], made)
    with pytest.raises(RequestRefused) as caught:
        made.close()
    reasons = dict(caught.value.refusals)
    assert (reasons["input.messages.image"], reasons["input.messages"]) == ("no images", "no messages")


@pytest.mark.parametrize("feature", ["image", "tool_call", "tool_result", "reasoning", "opaque", "developer", "name"])
def test_what_was_dropped_is_gone_and_nothing_else(feature: str) -> None:
    left = active_leaves(Request("m", Input(messages=tuple(without_dropped(ALL, ledger(ALL, feature))))))
    before = active_leaves(Request("m", Input(messages=ALL)))
    gone = {leaf.removeprefix("input.messages.") for leaf in before if leaf not in left}
    assert gone - {"image_detail"} == {feature}


def test_a_detail_and_a_blob_leave_their_part() -> None:
    kept = without_dropped(ALL, ledger(ALL, "image_detail", "opaque"))
    assert kept[1].content == (TextPart("See"), ImagePart(url="https://x.test/a.png"))
    assert kept[2].content == (ReasoningPart("so"), TextPart("Yes"), ToolCallPart("c", "f", "{}"))
    assert kept[4].content == ()


def test_nothing_dropped_changes_nothing() -> None:
    assert without_dropped(ALL, ledger(ALL)) == list(ALL)


def test_the_rest_is_covered_where_the_messages_stand() -> None:
    messages = (text_message("system", "s"), Message("user", (ImagePart(url="https://x.test/a.png"),), name="ann"))
    made = ledger(messages, "name")
    made.noop("model", "fine")
    made.send("input.messages.system", "/system", "s")
    made.send("input.messages", "/messages", [])
    cover(made, "/messages")
    assert made.close()[2:] == (
        Decision("input.messages.system", "sent", "/system"),
        Decision("input.messages.name", "dropped", reason="no"),
        Decision("input.messages.image", "sent", "/messages"),
    )


@pytest.mark.parametrize("dialect_id", WIRES)
def test_a_dropped_part_does_not_go_out(dialect_id: str) -> None:
    messages = (USER, Message("assistant", (TextPart("Yes", FOREIGN), OpaquePart(FOREIGN))), USER)
    request = Request("m", Input(messages=messages))
    with pytest.raises(RequestRefused, match="elsewhere"):
        lower(request, get_dialect(dialect_id), Facts())
    body = lower(request, get_dialect(dialect_id), Facts(), drop=("input.messages.opaque",)).wire.body.decode()
    assert "Yes" in body
    assert "sealed" not in body


@pytest.mark.parametrize("dialect_id", ["anthropic_messages", "google_genai"])
def test_messages_of_which_nothing_is_left_are_refused(dialect_id: str) -> None:
    request = Request("m", Input(messages=(Message("user", (OpaquePart(FOREIGN),)),)))
    with pytest.raises(RequestRefused, match="no turn is left"):
        lower(request, get_dialect(dialect_id), Facts(), drop=("input.messages.opaque",))


def test_only_a_json_object_is_one() -> None:
    found = json_object('{ "a": 1.0 }')
    assert found is not None
    assert bytes(found) == b'{ "a": 1.0 }'
    for text in ("[1]", "", "{", "1", json.dumps("{}")):
        assert json_object(text) is None
