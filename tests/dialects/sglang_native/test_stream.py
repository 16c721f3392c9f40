from __future__ import annotations

import json

import msgspec
import pytest

from dialects.sglang_native.sglang_cases import DIALECT, FACTS, OWN, events, lift, own_body, plain, recorded, request
from logproof.dialects.lower import lower
from logproof.dialects.sglang_native import SGLangNative
from logproof.errors import BadReply, ContextOverflow, ServerFault, StatusError
from logproof.http.exchange import SseEvent
from logproof.ir.request import Schedule

DONE = SseEvent(None, "[DONE]")


def same(one: object, other: object) -> bool:
    """Whether two lifted responses differ in nothing but the server's own name of the request."""
    found = [plain(r) for r in (one, other)]
    for response in found:
        assert isinstance(response, dict)
        del response["response_id"]
    return found[0] == found[1]


@pytest.mark.parametrize(
    ("streamed", "whole"),
    [
        ("score_stream", "score_ids"),
        ("incremental_score", "score_ids"),
        ("incremental_cjk", "score_cjk"),
        ("plain_stream", "plain"),
    ],
)
def test_streamed_and_plain_replies_lift_to_equal_responses(streamed: str, whole: str) -> None:
    assert same(lift(OWN[streamed], own_body(streamed)), lift(OWN[whole], own_body(whole)))


@pytest.mark.parametrize("name", ["labels_n2_stream", "incremental_n2"])
def test_interleaved_choices_are_kept_apart(name: str) -> None:
    response = lift(OWN[name], own_body(name))
    assert [c.index for c in response.choices] == [0, 1]
    assert response.usage.completion == 4


@pytest.mark.parametrize("name", ["62_stream_incremental", "42_stream_cumulative", "63_stream_incremental_unicode"])
def test_both_forms_give_every_token(name: str) -> None:
    body = json.loads(DIALECT.assemble(events(str(recorded(name)["response"]))))
    assert len(body["output_ids"]) == body["meta_info"]["completion_tokens"] == 4


def test_both_forms_of_one_request_assemble_alike() -> None:
    cumulative, incremental = (
        json.loads(DIALECT.assemble(events(str(recorded(n)["response"]))))
        for n in ("42_stream_cumulative", "62_stream_incremental")
    )
    for body in (cumulative, incremental):
        del body["meta_info"]["id"]
    assert cumulative == incremental


@pytest.mark.parametrize("cut", range(4))
def test_a_stream_cut_anywhere_is_refused(cut: int) -> None:
    whole = events(str(recorded("own_score_stream")["response"]))
    assert len(whole) > cut
    with pytest.raises(BadReply):
        DIALECT.assemble(whole[:cut])


def test_a_stream_without_its_last_chunk_is_refused() -> None:
    whole = events(str(recorded("own_score_stream")["response"]))
    with pytest.raises(BadReply, match="finished"):
        DIALECT.assemble([*whole[:-2], DONE])
    with pytest.raises(BadReply, match="choices"):
        DIALECT.assemble([DONE])


def test_an_event_cut_inside_its_json_is_refused() -> None:
    with pytest.raises(BadReply, match="JSON"):
        DIALECT.assemble([SseEvent(None, '{"text": "a", "output_'), DONE])


def test_an_error_inside_the_stream_is_typed() -> None:
    with pytest.raises(ContextOverflow, match="2048"):
        DIALECT.assemble(events(str(recorded("44_stream_error")["response"])))


def test_an_abort_inside_the_stream_is_a_failure() -> None:
    body = DIALECT.assemble(events(str(recorded("a4_stream_abort_in_band")["response"])))
    with pytest.raises(ServerFault, match="timeout") as caught:
        lift(request(), body)
    assert caught.value.status == 503
    refused = body.replace(b"503", b"400")
    with pytest.raises(StatusError) as other:
        lift(request(), refused)
    assert other.value.status == 400


def test_an_older_chunk_without_its_count_is_refused() -> None:
    with pytest.raises(BadReply, match="completion_tokens"):
        DIALECT.assemble(events(str(recorded("a11_pr17005_stream_chunk")["response"])))


def chunk(ids: list[int], count: int, *, finish: bool = False, index: int | None = None, **meta: object) -> SseEvent:
    """One event of a made-up stream."""
    reason = {"type": "length", "length": count} if finish else None
    info = {"prompt_tokens": 2, "completion_tokens": count, "finish_reason": reason, **meta}
    body: dict[str, object] = {"text": "x", "output_ids": ids, "meta_info": info}
    if index is not None:
        body["index"] = index
    return SseEvent(None, json.dumps(body))


@pytest.mark.parametrize(
    ("stream", "word"),
    [
        ([chunk([1], 2, finish=True), DONE], "first event"),
        ([chunk([1], 1), chunk([1, 2, 3], 2, finish=True), DONE], "3 ids after 1"),
        ([chunk([1], 1), chunk([9, 2], 2, finish=True), DONE], "2 ids after 1"),
        ([chunk([1], 1, finish=True), chunk([1, 2], 2, finish=True), DONE], "had finished"),
        ([chunk([1], 1, finish=True), DONE, DONE], "after the"),
        ([chunk([1], 1, finish=True, index=1), DONE], "choices"),
        ([chunk([1], 1), chunk([2], 2, finish=True, prompt_tokens=3), DONE], "length changed"),
        (
            [
                chunk([1], 1, input_token_logprobs=[[None, 5, None]]),
                chunk([2], 2, finish=True, input_token_logprobs=[[None, 6, None]]),
                DONE,
            ],
            "logprobs changed",
        ),
        ([SseEvent("ping", "{}"), chunk([1], 1, finish=True), DONE], "missing required"),
    ],
)
def test_foreign_streams_are_refused(stream: list[SseEvent], word: str) -> None:
    with pytest.raises(BadReply, match=word):
        DIALECT.assemble(stream)


def test_a_chunk_without_new_tokens_changes_nothing() -> None:
    stream = [chunk([1], 1), chunk([], 1), chunk([2], 2, finish=True), DONE]
    assert json.loads(DIALECT.assemble(stream))["output_ids"] == [1, 2]


def test_prompt_lists_may_come_once() -> None:
    stream = [chunk([1], 1, input_token_logprobs=[[None, 5, None]]), chunk([2], 2, finish=True), DONE]
    assert json.loads(DIALECT.assemble(stream))["meta_info"]["input_token_logprobs"] == [[None, 5, None]]


def test_a_server_without_tokenizer_streams_ids() -> None:
    stream = []
    for event in (chunk([1], 1), chunk([2], 2, finish=True)):
        body = json.loads(event.data)
        del body["text"]
        stream.append(SseEvent(None, json.dumps(body)))
    assert "text" not in json.loads(SGLangNative().assemble([*stream, DONE]))


def test_streaming_changes_only_its_own_field() -> None:
    unstreamed = msgspec.structs.replace(OWN["score_stream"], schedule=Schedule())
    one, other = (json.loads(lower(r, DIALECT, FACTS).wire.body) for r in (OWN["score_stream"], unstreamed))
    assert one.pop("stream") is True
    assert one == other
