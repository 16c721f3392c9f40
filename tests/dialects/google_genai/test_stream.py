from __future__ import annotations

import json

import msgspec
import pytest

from dialects.google_genai.test_reply import (
    ASKED,
    CHOSEN,
    DIALECT,
    SCORED,
    SIGNED,
    TOP,
    body,
    candidate,
    events,
    lift,
    recorded,
    reply,
)
from logproof.errors import BadReply, StatusError
from logproof.http.exchange import SseEvent
from logproof.ir.request import Sampling


def sse(*payloads: object) -> list[SseEvent]:
    return [SseEvent(None, json.dumps(p)) for p in payloads]


def piece(*parts: object, finish: str | None = None, index: int | None = None, **fields: object) -> dict[str, object]:
    made: dict[str, object] = {"content": {"role": "model", "parts": list(parts)}, **fields}
    made.update({"finishReason": finish} if finish else {})
    made.update({"index": index} if index is not None else {})
    return {"candidates": [made], "modelVersion": "gemini-2.5-flash", "responseId": "r"}


def test_a_stream_of_every_kind_equals_its_plain_reply() -> None:
    grounding = {"groundingChunks": [], "groundingSupports": []}
    stream = sse(
        piece({"text": "h", "thought": True}),
        piece({"text": "m", "thought": True}),
        piece({"text": "The"}, logprobsResult={"chosenCandidates": CHOSEN[:1], "topCandidates": TOP[:1]}),
        piece({"text": " sky"}, logprobsResult={"chosenCandidates": CHOSEN[1:], "topCandidates": TOP[1:]}),
        piece(SIGNED),
        piece({"text": "", "thoughtSignature": "e"}, finish="STOP", groundingMetadata=grounding),
        {"usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 2}},
    )
    plain = reply(
        candidate(
            {"text": "hm", "thought": True},
            {"text": "The sky"},
            SIGNED,
            {"text": "", "thoughtSignature": "e"},
            logprobsResult={"chosenCandidates": CHOSEN, "topCandidates": TOP},
            groundingMetadata=grounding,
        ),
        usageMetadata={"promptTokenCount": 3, "candidatesTokenCount": 2},
    )
    streamed, whole = lift(DIALECT.assemble(stream), SCORED), lift(plain, SCORED)
    assert streamed.usage == whole.usage
    one, other = streamed.choices[0], whole.choices[0]
    for name in ("text", "reasoning", "finish", "turn", "tool_calls", "opaque", "grounding"):
        assert getattr(one, name) == getattr(other, name)
    assert one.tokens is not None
    assert other.tokens is not None
    assert one.tokens.logprobs.tolist() == other.tokens.logprobs.tolist()


def test_candidates_of_a_stream_are_kept_apart() -> None:
    asked = msgspec.structs.replace(ASKED, sampling=Sampling(n=2))
    stream = sse(
        piece({"text": "a"}), piece({"text": "b"}, index=1), piece(finish="STOP", index=1), piece(finish="STOP")
    )
    assert [c.text for c in lift(DIALECT.assemble(stream), asked).choices] == ["a", "b"]


def test_the_arguments_that_a_gateway_streams_are_lifted() -> None:
    call = lift(body("tools_any_stream")).choices[0].tool_calls[0]
    assert (call.name, call.arguments) == ("get_weather", '"gaben"')


@pytest.mark.parametrize(
    ("stream", "word"),
    [
        ([], "cut"),
        (sse(piece({"text": "a"})), "cut"),
        (sse({"usageMetadata": {"promptTokenCount": 3}}), "cut"),
        (sse(piece({"text": "a"}, finish="STOP"), piece({"text": "b"})), "had finished"),
        ([SseEvent(None, '{"candidates": [')], "JSON"),
    ],
)
def test_broken_streams(stream: list[SseEvent], word: str) -> None:
    with pytest.raises(BadReply, match=word):
        DIALECT.assemble(stream)


@pytest.mark.parametrize("name", ["stream_sse", "tools_any_stream"])
def test_a_stream_cut_anywhere_is_refused(name: str) -> None:
    whole = events(str(recorded(name)["response_text"]))
    for cut in range(len(whole)):
        with pytest.raises(BadReply):
            DIALECT.assemble(whole[:cut])


@pytest.mark.parametrize(
    "payload", [{"error": {"code": 503, "message": "busy"}}, [{"error": {"code": 503, "message": "busy"}}]]
)
def test_an_error_inside_a_stream_is_typed(payload: object) -> None:
    with pytest.raises(StatusError, match="busy") as caught:
        DIALECT.assemble(sse(piece({"text": "a"}), payload))
    assert caught.value.status == 503


def test_a_gateways_done_mark_is_harmless() -> None:
    assert DIALECT.assemble([*sse(piece({"text": "a"}, finish="STOP")), SseEvent(None, "[DONE]")])
