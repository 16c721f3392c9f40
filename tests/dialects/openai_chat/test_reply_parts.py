"""What a chat reply holds beside its tokens: finish, reasoning, refusal, citations, tool calls, schema, usage."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from dialects.openai_chat.chat_cases import DIALECT, ask
from dialects.openai_chat.chat_replies import SCORED, logprobs, made
from logproof.dialects import reply_checks
from logproof.errors import (
    BadReply,
    ContextOverflow,
    MissingChannel,
    OutputContractError,
    StatusError,
)
from logproof.ir.facts import Facts
from logproof.ir.message import Opaque, OpaquePart, ReasoningPart, TextPart
from logproof.ir.request import Function, Output, Sampling, Tools


def test_choices_come_in_index_order() -> None:
    def reply(*indexes: int | None) -> bytes:
        message = {"content": "x"}
        return json.dumps(
            {"choices": [{"index": i, "message": message, "finish_reason": "stop"} for i in indexes]}
        ).encode()

    found = DIALECT.lift(ask(sampling=Sampling(n=3)), reply(2, 0, 1))
    assert [c.index for c in found.choices] == [0, 1, 2]
    with pytest.raises(BadReply, match="without index"):
        DIALECT.lift(ask(sampling=Sampling(n=2)), reply(0, None))
    assert DIALECT.lift(ask(), reply(None)).choices[0].index == 0
    for indexes in ((0,), (0, 2), (0, 0)):
        request = ask(sampling=Sampling(n=2))
        with pytest.raises(BadReply, match="for 2 asked"):
            reply_checks.check(request, DIALECT.lift(request, reply(*indexes)), Facts())


@pytest.mark.parametrize(
    ("raw", "called", "reason"),
    [
        ("stop", False, "stop"),
        ("stop", True, "tool_calls"),
        ("tool_calls", True, "tool_calls"),
        ("tool_calls", False, "other"),
        ("length", True, "length"),
        ("content_filter", False, "content_filter"),
        (None, False, "other"),
        ("eos", False, "other"),
    ],
)
def test_openai_chat_finish_reasons(raw: str | None, called: bool, reason: str) -> None:
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{"}}] if called else None
    finish = DIALECT.lift(ask(), made({"tool_calls": calls}, finish_reason=raw)).choices[0].finish
    assert (finish.reason, finish.raw) == (reason, raw)


def test_an_aborted_choice_is_an_error() -> None:
    with pytest.raises(BadReply, match="ended this choice with 'abort'"):
        DIALECT.lift(ask(), made(finish_reason="abort"))


def test_the_matched_stop_of_either_engine() -> None:
    assert DIALECT.lift(ask(), made(stop_reason=7)).choices[0].finish.matched == 7
    assert DIALECT.lift(ask(), made(matched_stop="x")).choices[0].finish.matched == "x"


def test_reasoning_that_used_all_tokens_is_a_valid_empty_answer() -> None:
    body = made({"content": None, "reasoning": "hm"}, {"completion_tokens": 8}, finish_reason="length")
    response = DIALECT.lift(ask(), body)
    assert (response.choices[0].text, response.choices[0].reasoning) == ("", "hm")
    assert response.choices[0].turn == (ReasoningPart("hm"),)
    assert response.notes == ()
    assert DIALECT.lift(ask(), made({"reasoning": "a", "reasoning_content": "a"})).choices[0].reasoning == "a"
    with pytest.raises(BadReply, match="differ"):
        DIALECT.lift(ask(), made({"reasoning": "a", "reasoning_content": "b"}))


def test_a_refusal_is_no_text() -> None:
    body = made({"content": None, "refusal": "I cannot."})
    (choice,) = DIALECT.lift(ask(), body).choices
    assert (choice.text, choice.refusal) == ("", "I cannot.")
    assert choice.turn == (OpaquePart(Opaque("openai_chat", "refusal", "I cannot.")),)
    with pytest.raises(OutputContractError, match="the model refused"):
        DIALECT.lift(ask(output=Output(json_object=True)), body)


def test_scored_refusals_stand_in_their_own_list() -> None:
    refused = {"content": None, "refusal": logprobs(("No", -0.2))["content"]}
    body = made({"content": None, "refusal": "No"}, {"completion_tokens": 1}, logprobs=refused)
    assert len(DIALECT.lift(SCORED, body).choices[0].tokens or ()) == 1


def test_citations() -> None:
    cited = {"type": "url_citation", "url_citation": {"url": "u", "title": "t", "start_index": 0, "end_index": 2}}
    (found, other) = DIALECT.lift(ask(), made({"annotations": [cited, {"type": "x"}]})).choices[0].citations
    assert (found.kind, found.url, found.title, found.start, found.end, found.item) == (
        "url_citation",
        "u",
        "t",
        0,
        2,
        cited,
    )
    assert (other.kind, other.url, other.start) == ("x", None, None)


def test_structured_output_is_validated_here() -> None:
    request = ask(output=Output(json_schema={"type": "object", "required": ["a"]}))
    assert DIALECT.lift(request, made({"content": '{"a":1}'})).choices[0].parsed == {"a": 1}
    with pytest.raises(OutputContractError, match="off the schema"):
        DIALECT.lift(request, made({"content": "{}"}))
    with pytest.raises(OutputContractError, match="long runs of white space"):
        DIALECT.lift(request, made({"content": "{" + "\n" * 4000}, finish_reason="length"))
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert DIALECT.lift(request, made({"content": None, "tool_calls": [call]})).choices[0].parsed is None


@pytest.mark.parametrize(
    "call",
    [
        {"type": "function", "function": {"name": "f", "arguments": "{}"}},
        {"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}},
        {"id": "c", "type": "function", "function": {"arguments": "{}"}},
    ],
)
def test_a_call_without_id_or_function_is_refused(call: dict[str, Any]) -> None:
    with pytest.raises(BadReply, match="without id or function"):
        DIALECT.lift(ask(), made({"tool_calls": [call]}))


def test_the_withdrawn_function_call_is_refused() -> None:
    with pytest.raises(BadReply, match="withdrawn form"):
        DIALECT.lift(ask(), made({"function_call": {"name": "f", "arguments": "{}"}}))


def test_a_forced_call_that_did_not_come_is_refused() -> None:
    f = (Function("f"), Function("g"))
    call = {"id": "c", "type": "function", "function": {"name": "g", "arguments": "{}"}}
    for choice, message in (("required", "required and did not come"), ("function:f", "a call of f was forced")):
        request = ask(tools=Tools(functions=f, choice=choice))
        with pytest.raises(MissingChannel, match=message):
            DIALECT.lift(request, made())
        assert DIALECT.lift(request, made(finish_reason="length")).text == "Hi"
        assert DIALECT.lift(request, made({"refusal": "No"})).choices[0].refusal == "No"
    with pytest.raises(MissingChannel, match="a call of f"):
        DIALECT.lift(ask(tools=Tools(functions=f, choice="function:f")), made({"tool_calls": [call]}))
    assert DIALECT.lift(ask(tools=Tools(functions=f, choice="required")), made({"tool_calls": [call]})).choices


def test_usage_with_every_breakdown() -> None:
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 5,
        "total_tokens": 14,
        "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 1, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 2, "accepted_prediction_tokens": 1},
    }
    found = DIALECT.lift(ask(), made(usage=usage)).usage
    assert (found.prompt, found.completion, found.total) == (9, 5, 14)
    assert (found.cached, found.cache_write, found.reasoning) == (4, 1, 2)
    assert found.details == {
        "prompt": usage["prompt_tokens_details"],
        "completion": usage["completion_tokens_details"],
    }
    assert DIALECT.lift(ask(), made()).usage.prompt is None
    with pytest.raises(BadReply, match="Expected `int` >= 0"):
        DIALECT.lift(ask(), made(usage={"prompt_tokens": -1}))


def test_an_error_object_of_status_200() -> None:
    overflow = {"error": {"message": "too long", "type": "x", "code": "context_length_exceeded"}}
    with pytest.raises(ContextOverflow, match="too long"):
        DIALECT.lift(ask(), json.dumps(overflow).encode())
    with pytest.raises(StatusError, match="broken"):
        DIALECT.lift(ask(), json.dumps({"error": {"message": "broken", "code": 500}}).encode())


def test_ids_of_a_sglang_prompt() -> None:
    body = made(matched_stop=None, prompt_token_ids=[1, 2], response_token_ids=[3])
    response = DIALECT.lift(ask(), body)
    assert response.prompt_ids is not None
    assert response.prompt_ids.tolist() == [1, 2]
    assert response.choices[0].token_ids is not None
    assert response.choices[0].token_ids.tolist() == [3]


def test_an_empty_text_is_kept_apart_from_null() -> None:
    assert DIALECT.lift(ask(), made({"content": ""})).choices[0].turn == (TextPart(""),)
    assert DIALECT.lift(ask(), made({"content": None})).choices[0].turn == ()


def test_service_tier_is_metadata() -> None:
    body = msgspec.json.decode(made(), type=dict)
    assert DIALECT.lift(ask(), json.dumps({**body, "service_tier": "flex"}).encode()).metadata == {
        "service_tier": "flex"
    }
