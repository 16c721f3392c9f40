"""Messages as items of the Responses wire: every role, part and round trip."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialects.openai_responses.responses_cases import ANY, DIALECT, HI, OPENAI, VLLM, ask, refusal, sent
from logproof.ir.facts import Facts
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
from logproof.ir.turn import to_message

CALL = ToolCallPart("call_1", "f", '{"a":  1}')
YES = text_message("assistant", "Yes")
WIRE_YES = {"type": "message", "role": "assistant", "content": "Yes"}


def wire(*messages: Message, facts: Facts = ANY) -> Any:
    return sent(ask(*messages), facts)["input"]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (text_message("system", "Be brief."), {"role": "system", "content": "Be brief."}),
        (text_message("developer", "Be brief."), {"role": "developer", "content": "Be brief."}),
        (Message("user", ()), {"role": "user", "content": ""}),
        (
            Message("user", (TextPart("a"), TextPart("b"))),
            {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
        ),
        (YES, {"role": "assistant", "content": "Yes"}),
        (Message("assistant", ()), {"role": "assistant", "content": ""}),
        (
            Message("user", (TextPart("See"), ImagePart(url="https://x.test/a.png", detail="low"))),
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "See"},
                    {"type": "input_image", "image_url": "https://x.test/a.png", "detail": "low"},
                ],
            },
        ),
        (
            Message("user", (ImagePart(data="aGk=", media_type="image/png"),)),
            {
                "role": "user",
                "content": [{"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "auto"}],
            },
        ),
    ],
)
def test_a_message(message: Message, expected: dict[str, object]) -> None:
    assert wire(HI, message, HI)[1] == {"type": "message", **expected}


def test_every_part_of_a_turn_is_an_item() -> None:
    turn = Message("assistant", (TextPart("a"), CALL, TextPart("b")))
    results = Message("tool", (ToolResultPart("call_1", "1", name="f"), ToolResultPart("x", "2", is_error=False)))
    assert wire(HI, turn, results)[1:] == [
        {**WIRE_YES, "content": "a"},
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": '{"a":  1}'},
        {**WIRE_YES, "content": "b"},
        {"type": "function_call_output", "call_id": "call_1", "output": "1"},
        {"type": "function_call_output", "call_id": "x", "output": "2"},
    ]


def test_bare_reasoning_goes_back_to_vllm_alone() -> None:
    turn = Message("assistant", (ReasoningPart("hm"), TextPart("Yes")))
    assert wire(HI, turn, HI, facts=VLLM)[1] == {
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "hm"}],
    }
    assert "keep the part's opaque" in refusal(ask(HI, turn, HI), OPENAI)["input.messages.reasoning"]


def test_prefill() -> None:
    assert wire(HI, YES, facts=VLLM)[1] == {
        **WIRE_YES,
        "status": "in_progress",
        "content": [{"type": "output_text", "text": "Yes", "annotations": []}],
    }
    assert "continues no assistant turn" in refusal(ask(HI, YES), OPENAI)["input.messages.prefill"]
    for last in (Message("assistant", (CALL,)), Message("assistant", ())):
        assert "ends in text" in refusal(ask(HI, last), VLLM)["input.messages.prefill"]


SIGNED = Opaque("anthropic_messages", "signature", "e")
ITEM = {"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "Yes"}]}


def own(item: Any) -> Opaque:
    return Opaque("openai_responses", "message", item)


@pytest.mark.parametrize(
    ("message", "facts", "leaf", "reason"),
    [
        (Message("user", (TextPart("Hi"),), name="ann"), ANY, "name", "openai_chat"),
        (Message("assistant", None), ANY, "null_content", "no empty turn"),
        (text_message("tool", "1"), ANY, "tool", "tool results"),
        (Message("tool", ()), ANY, "tool", "tool results"),
        (Message("tool", (ToolResultPart("a", "1"), TextPart("b"))), ANY, "tool", "no other part"),
        (Message("tool", (ToolResultPart("a", "1", is_error=True),)), ANY, "tool_error", "no mark"),
        (Message("user", (ToolResultPart("a", "1"),)), ANY, "tool_result", "tool messages"),
        (Message("user", (CALL,)), ANY, "tool_call", "assistant messages"),
        (Message("assistant", (ImagePart(url="u"),)), ANY, "image", "user messages"),
        (Message("user", (ImagePart(url="u", detail="low"),)), VLLM, "image_detail", "vLLM ignores it"),
        (Message("user", (ReasoningPart("x"),)), VLLM, "reasoning", "keep the part's opaque"),
        (Message("assistant", (OpaquePart(SIGNED),)), ANY, "opaque", "anthropic_messages's signature"),
        (Message("assistant", (OpaquePart(own("x")),)), ANY, "opaque", "no place"),
        (Message("user", (TextPart("Yes", own(ITEM)),)), ANY, "opaque", "no place"),
        (Message("assistant", (TextPart("No", own(ITEM)),)), ANY, "opaque", "was changed"),
        (Message("assistant", (ToolCallPart("a", "f", "{}", own(ITEM)),)), ANY, "opaque", "was changed"),
        (Message("assistant", (ReasoningPart("x", own(ITEM)),)), ANY, "opaque", "was changed"),
    ],
)
def test_openai_responses_refuses(message: Message, facts: Facts, leaf: str, reason: str) -> None:
    assert reason in refusal(ask(HI, message, HI), facts)[f"input.messages.{leaf}"]


def test_dropped_parts_stay_out() -> None:
    turn = Message("assistant", (OpaquePart(SIGNED), ReasoningPart("hm"), TextPart("Yes", SIGNED)))
    dropped = ("input.messages.opaque", "input.messages.reasoning")
    assert sent(ask(HI, turn, HI), OPENAI, *dropped)["input"][1:2] == [WIRE_YES]


TEXTS = st.text(max_size=12)
IDS = st.text("abc_1", min_size=1, max_size=6)
MESSAGES = st.fixed_dictionaries(
    {
        "type": st.just("message"),
        "id": IDS,
        "role": st.just("assistant"),
        "status": st.just("completed"),
        "phase": st.sampled_from([None, "commentary", "final_answer"]),
        "content": st.lists(
            st.fixed_dictionaries({"type": st.just("output_text"), "text": TEXTS, "annotations": st.just([])})
            | st.fixed_dictionaries({"type": st.just("refusal"), "refusal": TEXTS}),
            max_size=3,
        ),
    }
)
CALLS = st.fixed_dictionaries(
    {"type": st.just("function_call"), "id": IDS, "call_id": IDS, "name": IDS, "arguments": TEXTS}
)
REASONING = st.fixed_dictionaries(
    {
        "type": st.just("reasoning"),
        "id": IDS,
        "summary": st.lists(st.fixed_dictionaries({"type": st.just("summary_text"), "text": TEXTS}), max_size=2),
        "encrypted_content": st.none() | TEXTS,
    }
)
HOSTED = st.fixed_dictionaries(
    {"type": st.just("web_search_call"), "id": IDS, "action": st.dictionaries(IDS, st.none() | TEXTS, max_size=2)}
)


@given(st.lists(MESSAGES | CALLS | REASONING | HOSTED, min_size=1, max_size=5))
def test_lifted_items_go_back_byte_for_byte(items: list[dict[str, Any]]) -> None:
    reply = {"id": "resp_1", "status": "completed", "output": items}
    choice = DIALECT.lift(ask(), json.dumps(reply).encode()).choices[0]
    assert json.dumps(wire(HI, to_message(choice), HI)[1:-1]) == json.dumps(items)
