"""Streams of the Responses wire: their last event is the reply, or they are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dialects.compare import same_reply
from dialects.openai_responses.responses_cases import DIALECT, ask
from dialects.openai_responses.responses_wires import request_of
from dialects.wires import load
from logproof.errors import BadReply, ContextOverflow, LogproofError, RateLimited, ServerFault
from logproof.http.exchange import SseEvent
from logproof.ir.message import Opaque, TextPart
from logproof.ir.request import Schedule
from logproof.ir.response import Response

STREAM = ask(schedule=Schedule(stream=True))
MESSAGE = {"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "Hi"}]}


def event(kind: str, **fields: Any) -> SseEvent:
    return SseEvent(kind, json.dumps({"type": kind, "sequence_number": 0, **fields}))


def end(*output: Any, kind: str = "response.completed", **fields: Any) -> SseEvent:
    status = kind.removeprefix("response.")
    response = {"id": "r", "model": "m", "status": status, "output": list(output or (MESSAGE,)), **fields}
    return event(kind, response=response)


def lift(*events: SseEvent) -> Response:
    return DIALECT.lift(STREAM, DIALECT.assemble(events))


START = event("response.created", response={"status": "in_progress", "output": [], "error": None})
DELTA = event("response.output_text.delta", delta="Hi", item_id="msg_1", output_index=0, content_index=0)


def test_the_last_event_is_the_reply() -> None:
    assert lift(START, DELTA, end(), SseEvent(None, "[DONE]")).text == "Hi"
    cut = end(kind="response.incomplete", incomplete_details={"reason": "max_output_tokens"})
    assert lift(START, cut).choices[0].finish.reason == "length"


def test_unknown_events_pass() -> None:
    assert lift(START, event("response.sparkle", x=1), event("keepalive"), end()).text == "Hi"


def test_sealed_reasoning_comes_from_its_own_event() -> None:
    bare = {"type": "reasoning", "id": "rs_1", "summary": []}
    done = event("response.output_item.done", output_index=0, item={**bare, "encrypted_content": "e", "status": None})
    other = event("response.output_item.done", output_index=1, item={"id": "other", "phase": "x"})
    (choice,) = lift(START, done, other, end(bare, MESSAGE)).choices
    assert choice.opaque[0].blob == {**bare, "encrypted_content": "e"}
    assert choice.turn is not None
    assert choice.turn[1] == TextPart("Hi", Opaque("openai_responses", "message", MESSAGE))


@pytest.mark.parametrize(
    ("events", "kind", "message"),
    [
        ([], BadReply, "holds 0 of its one last event"),
        ([START, DELTA], BadReply, "holds 0"),
        ([START, end(), end()], BadReply, "holds 2"),
        ([START, event("response.completed")], BadReply, "one last event"),
        ([START, SseEvent("response.output_text.delta", '{"type": "resp')], BadReply, "no JSON"),
        ([START, SseEvent(None, "[1]")], BadReply, "Expected `object`"),
        ([START, event("error", code="rate_limit_exceeded", message="slow")], RateLimited, "slow"),
        (
            [START, event("error", error={"type": "x", "code": "context_length_exceeded", "message": "long"})],
            ContextOverflow,
            "long",
        ),
        (
            [START, end(kind="response.failed", error={"code": "server_error", "message": "died"})],
            ServerFault,
            "died",
        ),
        ([START, event("response.completed", response={"status": "completed", "output": 3})], BadReply, "array"),
    ],
)
def test_a_broken_stream_is_refused(events: list[SseEvent], kind: type[LogproofError], message: str) -> None:
    with pytest.raises(kind, match=message):
        lift(*events)


def test_recorded_pairs_lift_alike() -> None:
    for streamed, direct in (
        ("parser_tools_required_stream", "parser_tools_required"),
        ("vllm_stream_schema", "vllm_schema"),
        ("vllm_stream_stop", "vllm_plain"),
    ):
        found, other = load("openai_responses", streamed), load("openai_responses", direct)
        left = same_reply(DIALECT.lift(request_of(found.request), DIALECT.reply_body(found.reply)))
        right = same_reply(DIALECT.lift(request_of(other.request), other.body))
        for choice in (*left["choices"], *right["choices"]):
            for part in choice["turn"]:
                for name in ("id", "call_id"):
                    part["opaque"]["blob"].pop(name, None)
            for call in choice["tool_calls"]:
                call.pop("opaque")
        assert left["choices"] == right["choices"]
        assert left["usage"]["completion"] == right["usage"]["completion"]
