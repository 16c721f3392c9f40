from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from logproof.dialects import reply_checks
from logproof.dialects.lower import lower
from logproof.dialects.registry import get_dialect
from logproof.errors import BadReply, ContextOverflow, OutputContractError, StatusError
from logproof.http.exchange import SseEvent
from logproof.http.faults import read_fault
from logproof.http.sse import SseParser
from logproof.ir.facts import Facts
from logproof.ir.message import OpaquePart, ReasoningPart, TextPart, ToolCallPart, text_message
from logproof.ir.request import Input, Output, Request, Sampling
from logproof.ir.response import Response, Usage
from logproof.ir.turn import to_message

REPLIES = Path(__file__).parents[2] / "replies" / "anthropic_messages"
DIALECT = get_dialect("anthropic_messages")
USER = text_message("user", "Hi")
ASKED = Request("claude", Input(messages=(USER,)), sampling=Sampling(max_tokens=64))
SCHEMA = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}


def recorded(name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads((REPLIES / f"{name}.json").read_text())
    return found


def events(text: str) -> list[SseEvent]:
    parser = SseParser()
    return parser.feed(text.encode()) + parser.close()


def body(name: str) -> bytes:
    held = recorded(name)
    if "response_text" in held:
        return DIALECT.assemble(events(str(held["response_text"])))
    return msgspec.json.encode(held["response"])


def lift(raw: bytes, asked: Request = ASKED) -> Response:
    response = DIALECT.lift(asked, raw)
    reply_checks.check(asked, response, Facts())
    return response


def reply(*blocks: object, **fields: object) -> bytes:
    made = {"type": "message", "role": "assistant", "id": "msg_1", "model": "claude", "stop_reason": "end_turn"}
    return json.dumps({**made, "content": list(blocks), **fields}).encode()


@pytest.mark.parametrize(
    ("name", "text", "reason", "matched"),
    [
        ("vllm_plain", "The answer is 4.", "stop", None),
        ("vllm_length", "The answer", "length", None),
        ("vllm_stop", "The ", "stop", "answer"),
        ("vllm_stream_stop", "The ", "stop", "answer"),
        ("vllm_tool_result", "You're looking for a", "length", None),
        ("vllm_messages_stream", "How can I", "length", None),
        ("sglang_messages_basic", "Hello! How", "length", None),
        ("sglang_messages_stream", "By the god", "length", None),
    ],
)
def test_recordings(name: str, text: str, reason: str, matched: str | None) -> None:
    response = lift(body(name))
    choice = response.choices[0]
    assert (choice.text, choice.finish.reason, choice.finish.matched) == (text, reason, matched)
    assert response.model == "smollm2"
    assert response.usage.prompt
    assert response.usage.total is None


def test_streamed_and_plain_replies_lift_to_equal_responses() -> None:
    streamed, plain = lift(body("vllm_stream_stop")), lift(body("vllm_stop"))
    assert streamed.choices[0].text == plain.choices[0].text
    assert streamed.choices[0].finish == plain.choices[0].finish
    assert streamed.choices[0].turn == plain.choices[0].turn
    assert streamed.usage == plain.usage


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("vllm_messages_overflow", ContextOverflow),
        ("sglang_messages_overflow", ContextOverflow),
        ("vllm_err_nomax", StatusError),
        ("vllm_b_tools_any", StatusError),
    ],
)
def test_both_error_envelopes_are_typed(name: str, error: type[StatusError]) -> None:
    held = recorded(name)
    assert read_fault(msgspec.json.encode(held["response"])).message
    with pytest.raises(error):
        lift(body(name))


def test_arguments_that_are_no_object_stay_as_the_model_wrote_them() -> None:
    call = lift(body("vllm_b_tools_any_stream")).choices[0].tool_calls[0]
    assert (call.name, call.arguments) == ("get_weather", '"gaben"')


def test_structured_output() -> None:
    asked = msgspec.structs.replace(ASKED, output=Output(json_schema=SCHEMA))
    assert lift(body("vllm_messages_json_schema"), asked).choices[0].parsed == {"a": True}
    with pytest.raises(OutputContractError):
        lift(reply({"type": "text", "text": '{"a": 1}'}), asked)
    with pytest.raises(OutputContractError, match="max_tokens"):
        lift(reply({"type": "text", "text": '{"a": tr'}, stop_reason="max_tokens"), asked)


THINKING = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
REDACTED = {"type": "redacted_thinking", "data": "e"}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [{"type": "web_search_result", "url": "u"}],
}
CITED = {
    "type": "text",
    "text": "Blue.",
    "citations": [
        {
            "type": "web_search_result_location",
            "url": "https://a",
            "title": "A",
            "encrypted_index": "E",
            "cited_text": "b",
        }
    ],
}
CALL = '{"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"x":  1.0}, "caller": {"type": "direct"}}'


def test_every_kind_of_block() -> None:
    raw = reply(
        THINKING, REDACTED, {"type": "text", "text": "Sky: "}, SEARCH, FOUND, CITED, "CALL", stop_reason="tool_use"
    )
    choice = lift(raw.replace(b'"CALL"', CALL.encode())).choices[0]
    assert choice.text == "Sky: Blue."
    assert choice.reasoning == "hm"
    assert choice.finish.reason == "tool_calls"
    assert [(c.id, c.name, c.arguments) for c in choice.tool_calls] == [("toolu_1", "f", '{"x":  1.0}')]
    assert [u.kind for u in choice.hosted_uses] == ["server_tool_use", "web_search_tool_result"]
    assert choice.hosted_uses[1].item == FOUND
    citation = choice.citations[0]
    assert (citation.url, citation.title, citation.start, citation.end) == ("https://a", "A", 5, 10)
    assert [o.kind for o in choice.opaque] == [
        "signature",
        "redacted_thinking",
        "server_tool_use",
        "web_search_tool_result",
        "tool_use",
    ]


def test_a_turn_goes_back_as_it_came() -> None:
    raw = reply(THINKING, REDACTED, SEARCH, FOUND, CITED, "CALL", stop_reason="tool_use").replace(
        b'"CALL"', CALL.encode()
    )
    message = to_message(lift(raw).choices[0])
    asked = msgspec.structs.replace(ASKED, input=Input(messages=(USER, message, USER)))
    back = lower(asked, DIALECT, Facts()).wire.body
    assert json.loads(back)["messages"][1]["content"] == json.loads(raw)["content"]
    assert b'{"x":  1.0}' in back


@pytest.mark.parametrize(
    ("reason", "normal"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("refusal", "content_filter"),
        ("pause_turn", "other"),
        ("tomorrow", "other"),
    ],
)
def test_stop_reasons(reason: str, normal: str) -> None:
    finish = lift(reply({"type": "text", "text": "a"}, stop_reason=reason)).choices[0].finish
    assert (finish.reason, finish.raw) == (normal, reason)


@pytest.mark.parametrize(
    ("details", "refusal"),
    [
        ({"type": "refusal", "category": "bio", "explanation": "No."}, "No."),
        ({"type": "refusal", "category": "bio", "explanation": None}, "bio"),
        (None, "refused without a reason"),
    ],
)
def test_a_refusal_is_not_text(details: object, refusal: str) -> None:
    choice = lift(reply(stop_reason="refusal", stop_details=details)).choices[0]
    assert (choice.text, choice.refusal) == ("", refusal)


def test_thinking_that_is_left_out_keeps_its_signature() -> None:
    choice = lift(reply({"type": "thinking", "thinking": "", "signature": "s"}, {"type": "text", "text": "a"})).choices[
        0
    ]
    assert choice.reasoning == ""
    assert isinstance((choice.turn or ())[0], ReasoningPart)
    unsigned = lift(reply({"type": "thinking", "thinking": "hm"})).choices[0]
    assert unsigned.opaque == ()


def test_unknown_blocks_are_kept_and_empty_texts_are_not() -> None:
    choice = lift(reply({"type": "container_upload", "file_id": "f"}, {"type": "text", "text": ""})).choices[0]
    assert choice.hosted_uses == ()
    assert [type(p) for p in choice.turn or ()] == [OpaquePart]


def test_tool_calls_with_a_plain_stop_are_lifted() -> None:
    choice = lift(reply({"type": "tool_use", "id": "t", "name": "f", "input": {}})).choices[0]
    assert (choice.finish.raw, len(choice.tool_calls)) == ("end_turn", 1)
    assert isinstance(choice.tool_calls[0], ToolCallPart)


def test_usage_counts_the_cache_as_prompt() -> None:
    usage = {
        "input_tokens": 5,
        "output_tokens": 9,
        "cache_creation_input_tokens": 10,
        "cache_read_input_tokens": 100,
        "output_tokens_details": {"thinking_tokens": 4},
        "service_tier": "standard",
        "server_tool_use": {"web_search_requests": 1},
    }
    found = lift(reply({"type": "text", "text": "a"}, usage=usage)).usage
    assert found == Usage(
        prompt=115,
        completion=9,
        cached=100,
        cache_write=10,
        reasoning=4,
        details={"server_tool_use": {"web_search_requests": 1}, "service_tier": "standard"},
    )
    assert lift(reply({"type": "text", "text": "a"})).usage == Usage()


def test_tokens_without_text_are_noted() -> None:
    response = lift(reply(usage={"input_tokens": 1, "output_tokens": 7}, container={"id": "c"}))
    assert response.notes == ("7 tokens were sampled and no text came",)
    assert response.metadata == {"container": {"id": "c"}}


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        (reply(stop_reason=None), "did not finish"),
        (b'{"type": "message"}', "content"),
        (reply({"type": "text"}), "promises"),
        (reply({"type": "thinking"}), "promises"),
        (reply({"type": "tool_use", "id": "t", "name": "f"}), "without arguments"),
        (reply({"type": "tool_use", "name": "f", "input": {}}), "promises"),
        (reply({"type": "text", "text": 5}), "/content/0/text"),
        (reply("text"), "/content/0"),
        (b"<html>", "no JSON"),
    ],
)
def test_broken_replies(raw: bytes, word: str) -> None:
    with pytest.raises(BadReply, match=word):
        lift(raw)


def test_text_is_text() -> None:
    assert lift(reply({"type": "text", "text": "a"})).choices[0].turn == (TextPart("a"),)
