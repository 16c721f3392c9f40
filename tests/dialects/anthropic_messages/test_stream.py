from __future__ import annotations

import json

import msgspec
import pytest

from dialects.anthropic_messages.test_reply import CITED, DIALECT, REDACTED, THINKING, lift, reply
from logproof.errors import BadReply, ServerFault
from logproof.http.exchange import SseEvent


def sse(*payloads: object) -> list[SseEvent]:
    found = []
    for payload in payloads:
        assert isinstance(payload, dict)
        found.append(SseEvent(str(payload["type"]), json.dumps(payload)))
    return found


START = {
    "type": "message_start",
    "message": {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "c",
        "usage": {"input_tokens": 5, "output_tokens": 1},
    },
}
STOP = {"type": "message_stop"}


def block(index: int, kind: dict[str, object], *deltas: dict[str, object]) -> list[dict[str, object]]:
    opened: dict[str, object] = {"type": "content_block_start", "index": index, "content_block": kind}
    filled: list[dict[str, object]] = [{"type": "content_block_delta", "index": index, "delta": d} for d in deltas]
    return [opened, *filled, {"type": "content_block_stop", "index": index}]


def ending(reason: str = "end_turn", **usage: int) -> dict[str, object]:
    return {
        "type": "message_delta",
        "delta": {"stop_reason": reason, "stop_sequence": None},
        "usage": usage or {"output_tokens": 9},
    }


WHOLE = [
    START,
    {"type": "ping"},
    *block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "h"},
        {"type": "thinking_delta", "thinking": "m"},
        {"type": "signature_delta", "signature": "c2ln"},
    ),
    *block(1, REDACTED),
    {"type": "tomorrow", "x": 1},
    *block(
        2,
        {"type": "text", "text": ""},
        {"type": "text_delta", "text": "Bl"},
        {"type": "citations_delta", "citation": CITED["citations"][0]},
        {"type": "text_delta", "text": "ue."},
    ),
    *block(
        3,
        {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}},
        {"type": "input_json_delta", "partial_json": ""},
        {"type": "input_json_delta", "partial_json": '{"x": '},
        {"type": "input_json_delta", "partial_json": "1.0}"},
    ),
    *block(4, {"type": "tool_use", "id": "toolu_2", "name": "g", "input": {}}),
    ending("tool_use", output_tokens=9, cache_read_input_tokens=2),
    STOP,
]


def test_a_stream_of_every_kind_equals_its_plain_reply() -> None:
    plain = reply(
        THINKING,
        REDACTED,
        CITED,
        {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"x": 1.0}},
        {"type": "tool_use", "id": "toolu_2", "name": "g", "input": {}},
        id="m",
        model="c",
        stop_reason="tool_use",
        usage={"input_tokens": 5, "output_tokens": 9, "cache_read_input_tokens": 2},
    )
    streamed, whole = lift(DIALECT.assemble(sse(*WHOLE))), lift(plain)
    for name in ("usage", "model", "response_id", "notes"):
        assert getattr(streamed, name) == getattr(whole, name)
    one, other = (msgspec.structs.asdict(r.choices[0]) for r in (streamed, whole))
    assert one == other


@pytest.mark.parametrize("cut", range(1, len(WHOLE)))
def test_a_stream_cut_anywhere_is_refused(cut: int) -> None:
    with pytest.raises(BadReply):
        DIALECT.assemble(sse(*WHOLE[:cut]))


def test_an_error_inside_a_stream_is_typed() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    with pytest.raises(ServerFault) as caught:
        DIALECT.assemble(sse(START, error))
    assert (caught.value.status, caught.value.code) == (529, "overloaded_error")


def test_a_gateways_done_mark_after_the_end_is_harmless() -> None:
    assert DIALECT.assemble([*sse(START, ending(), STOP), SseEvent(None, "[DONE]")])


@pytest.mark.parametrize(
    ("payloads", "word"),
    [
        ([START, START], "second start"),
        ([{"type": "message_start"}], "without message"),
        ([START, *block(1, {"type": "text", "text": ""})], "0 was next"),
        ([START, {"type": "content_block_start", "index": 0}], "0 was next"),
        (
            [START, {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}}],
            "not open",
        ),
        ([START, {"type": "content_block_stop", "index": 0}], "not open"),
        ([START, *block(0, {"type": "text", "text": ""}, {"type": "tomorrow_delta"})], "unknown type"),
        ([START, *block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": 5})], "without text"),
        ([START, *block(0, {"type": "tool_use"}, {"type": "input_json_delta", "partial_json": '{"a":1'})], "no JSON"),
        ([ending()], "before the start"),
        ([START, ending(), STOP, *block(0, {"type": "text"})], "after message_stop"),
        (
            [START, {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}, ending(), STOP],
            "inside block 0",
        ),
        ([STOP], "cut"),
    ],
)
def test_foreign_streams_are_refused(payloads: list[object], word: str) -> None:
    with pytest.raises(BadReply, match=word):
        DIALECT.assemble(sse(*payloads))


def test_a_stream_that_is_no_json_is_refused() -> None:
    with pytest.raises(BadReply, match="JSON"):
        DIALECT.assemble([SseEvent(None, "{")])
