"""Messages on the chat wire: every role, part and round trip."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialects.openai_chat.chat_cases import ANY, DIALECT, HI, OPENAI, SGLANG, VLLM, ask, refusal, sent
from logproof.ir.facts import Facts
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
    text_message,
)
from logproof.ir.turn import to_message

CALL = ToolCallPart("call_1", "f", '{"a":  1}')
WIRE_CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a":  1}'}}
YES = text_message("assistant", "Yes")


def wire(*messages: Message, facts: Facts = ANY) -> Any:
    return sent(ask(*messages), facts)["messages"]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (text_message("system", "Be brief."), {"role": "system", "content": "Be brief."}),
        (text_message("developer", "Be brief."), {"role": "developer", "content": "Be brief."}),
        (Message("user", (TextPart("Hi"),), name="ann"), {"role": "user", "name": "ann", "content": "Hi"}),
        (Message("user", ()), {"role": "user", "content": ""}),
        (
            Message("user", (TextPart("a"), TextPart("b"))),
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        ),
        (Message("assistant", None), {"role": "assistant", "content": None}),
        (text_message("assistant", ""), {"role": "assistant", "content": ""}),
        (Message("assistant", (CALL,)), {"role": "assistant", "content": None, "tool_calls": [WIRE_CALL]}),
        (
            Message("assistant", (TextPart(""), CALL)),
            {"role": "assistant", "content": "", "tool_calls": [WIRE_CALL]},
        ),
        (
            Message("assistant", (OpaquePart(Opaque("openai_chat", "refusal", "No.")),)),
            {"role": "assistant", "content": None, "refusal": "No."},
        ),
        (
            Message("user", (TextPart("See"), ImagePart(url="https://x.test/a.png", detail="low"))),
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "See"},
                    {"type": "image_url", "image_url": {"url": "https://x.test/a.png", "detail": "low"}},
                ],
            },
        ),
        (
            Message("user", (ImagePart(data="aGk=", media_type="image/png"),)),
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}],
            },
        ),
    ],
)
def test_a_message(message: Message, expected: dict[str, object]) -> None:
    assert wire(HI, message, HI)[1] == expected


def test_each_tool_result_is_a_message() -> None:
    results = Message("tool", (ToolResultPart("a", "1", name="f"), ToolResultPart("b", "2", is_error=False)))
    assert wire(HI, Message("assistant", (CALL,)), results)[2:] == [
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
    ]


def test_reasoning_goes_back_under_each_engine_s_name() -> None:
    turn = Message("assistant", (ReasoningPart("hm"), ReasoningPart("!"), TextPart("Yes")))
    assert wire(HI, turn, HI, facts=VLLM)[1] == {"role": "assistant", "content": "Yes", "reasoning": "hm!"}
    assert wire(HI, turn, HI, facts=SGLANG)[1] == {"role": "assistant", "content": "Yes", "reasoning_content": "hm!"}
    assert "openai_responses" in refusal(ask(HI, turn, HI), OPENAI)["input.messages.reasoning"]


def test_prefill() -> None:
    assert sent(ask(HI, YES), VLLM) == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes"}],
        "continue_final_message": True,
        "add_generation_prompt": False,
        "return_token_ids": True,
    }
    body = sent(ask(HI, YES), SGLANG)
    assert body["continue_final_message"] is True
    assert "add_generation_prompt" not in body
    for facts in (OPENAI, ANY):
        assert "continues no assistant turn" in refusal(ask(HI, YES), facts)["input.messages.prefill"]
    for last in (Message("assistant", None), Message("assistant", (CALL,)), Message("assistant", ())):
        assert "turn of text" in refusal(ask(HI, last), VLLM)["input.messages.prefill"]


SIGNED = Opaque("anthropic_messages", "signature", "e")


@pytest.mark.parametrize(
    ("message", "facts", "leaf", "reason"),
    [
        (Message("user", None), ANY, "null_content", "only an assistant"),
        (Message("tool", (ToolResultPart("a", "1"),), name="f"), ANY, "name", "no name"),
        (text_message("tool", "1"), ANY, "tool", "tool results"),
        (Message("tool", ()), ANY, "tool", "tool results"),
        (Message("tool", (ToolResultPart("a", "1"), TextPart("b"))), ANY, "tool", "no other part"),
        (Message("tool", (ToolResultPart("a", "1", is_error=True),)), ANY, "tool_error", "no mark"),
        (Message("user", (ToolResultPart("a", "1"),)), ANY, "tool_result", "stand in tool messages"),
        (Message("user", (CALL,)), ANY, "tool_call", "assistant messages"),
        (Message("assistant", (ImagePart(url="u"),)), ANY, "image", "user messages"),
        (Message("user", (ImagePart(),)), ANY, "image", "either a url or data"),
        (Message("user", (ImagePart(url="u", data="d", media_type="image/png"),)), ANY, "image", "either"),
        (Message("user", (ImagePart(data="d"),)), ANY, "image", "media type"),
        (Message("user", (ImagePart(url="u", detail="x"),)), ANY, "image_detail", "detail is one of"),
        (Message("user", (ImagePart(url="u", detail="low"),)), VLLM, "image_detail", "vLLM ignores it"),
        (Message("user", (ReasoningPart("x"),)), VLLM, "reasoning", "takes back no reasoning"),
        (Message("assistant", (OpaquePart(SIGNED),)), ANY, "opaque", "anthropic_messages's signature"),
        (Message("assistant", (OpaquePart(Opaque("openai_chat", "audio", 1)),)), ANY, "opaque", "no place"),
        (Message("assistant", (TextPart("a", SIGNED),)), ANY, "opaque", "on a part"),
        (Message("assistant", (ToolCallPart("a", "f", "{}", SIGNED),)), ANY, "opaque", "on a part"),
    ],
)
def test_openai_chat_refuses(message: Message, facts: Facts, leaf: str, reason: str) -> None:
    assert reason in refusal(ask(HI, message, HI), facts)[f"input.messages.{leaf}"]


def test_dropped_parts_stay_out() -> None:
    turn = Message("assistant", (OpaquePart(SIGNED), ReasoningPart("hm"), TextPart("Yes", SIGNED)))
    body = sent(ask(HI, turn, HI), OPENAI, "input.messages.opaque", "input.messages.reasoning")
    assert body["messages"][1] == {"role": "assistant", "content": "Yes"}
    named = Message("tool", (ToolResultPart("a", "1"),), name="f")
    assert sent(ask(HI, named), OPENAI, "input.messages.name")["messages"][1]["tool_call_id"] == "a"


TEXTS = st.text(max_size=12)
TURNS = st.fixed_dictionaries(
    {
        "content": st.none() | TEXTS.filter(bool),
        "tool_calls": st.lists(
            st.fixed_dictionaries(
                {
                    "id": TEXTS,
                    "type": st.just("function"),
                    "function": st.fixed_dictionaries({"name": TEXTS, "arguments": TEXTS}),
                }
            ),
            max_size=3,
        ),
    }
)


@given(TURNS)
def test_a_lifted_turn_goes_back_byte_for_byte(turn: dict[str, Any]) -> None:
    message = {"role": "assistant", "content": turn["content"]}
    if turn["tool_calls"]:
        message["tool_calls"] = turn["tool_calls"]
    reply = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    choice = DIALECT.lift(ask(), json.dumps(reply).encode()).choices[0]
    assert wire(HI, to_message(choice), HI)[1] == message


PARTS: list[Part] = [TextPart("a"), ReasoningPart("b"), CALL, OpaquePart(Opaque("openai_chat", "refusal", "No."))]


@given(st.lists(st.sampled_from(PARTS), max_size=5))
def test_no_part_of_a_turn_is_lost(parts: list[Part]) -> None:
    shown = json.dumps(wire(HI, Message("assistant", tuple(parts)), HI, facts=VLLM)[1])
    for part in parts:
        assert {TextPart: '"a"', ReasoningPart: "b", ToolCallPart: "call_1", OpaquePart: "No."}[type(part)] in shown
