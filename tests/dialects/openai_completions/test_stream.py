"""Streams of the completions wire, put together."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialects import wires
from logproof.dialects.openai_completions import OpenAICompletions
from logproof.dialects.openai_completions.stream import assemble
from logproof.errors import BadReply, StatusError
from logproof.http.exchange import SseEvent
from logproof.ir.request import Input, Request, Sampling

DIALECT = OpenAICompletions()


def events(*data: Any) -> tuple[SseEvent, ...]:
    return tuple(SseEvent(None, d if isinstance(d, str) else json.dumps(d)) for d in data)


def chunk(text: str, finish: str | None = None, index: int = 0, **more: object) -> dict[str, object]:
    return {"choices": [{"index": index, "text": text, "finish_reason": finish, **more}]}


def assembled(*data: Any) -> Any:
    return json.loads(assemble(events(*data)))


def test_texts_ids_and_scores_are_joined_in_order() -> None:
    one = {"tokens": ["a"], "token_logprobs": [-1.0], "top_logprobs": [{"a": -1.0}], "text_offset": [0]}
    none = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    whole = assembled(
        {"id": "x", "model": "m", **chunk("a", logprobs=one, token_ids=[1], prompt_token_ids=[9])},
        chunk("", token_ids=[2]),
        chunk("b", "stop", logprobs=none, stop_reason="z"),
        {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}},
        "[DONE]",
    )
    (choice,) = whole["choices"]
    assert (choice["text"], choice["token_ids"], choice["prompt_token_ids"]) == ("ab", [1, 2], [9])
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "z")
    assert choice["logprobs"]["token_logprobs"] == [-1.0]
    assert (whole["id"], whole["model"], whole["usage"]["prompt_tokens"]) == ("x", "m", 1)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_usage_may_come_in_any_event(place: int) -> None:
    parts: list[Any] = [chunk("a"), chunk("b", "stop")]
    parts.insert(place, {"choices": [], "usage": {"prompt_tokens": 7}})
    assert assembled(*parts, "[DONE]")["usage"]["prompt_tokens"] == 7


def test_choices_are_kept_apart_and_unknown_fields_ignored() -> None:
    whole = assembled(
        chunk("b", "stop", 1), chunk("a", index=0, frob=1), {"object": "ping"}, chunk("c", "stop", 0), "[DONE]"
    )
    assert [c["text"] for c in whole["choices"]] == ["ac", "b"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "before its \\[DONE\\] mark"),
        ([chunk("a", "stop")], "before its \\[DONE\\] mark"),
        ([chunk("a"), "[DONE]"], "before choices \\[0\\] finished"),
        (["[DONE]"], "before choices any finished"),
        ([chunk("a", "stop"), chunk("b"), "[DONE]"], "text after a choice had finished"),
        ([{"choices": [{"text": "a"}]}, "[DONE]"], "without index"),
        (['{"choices": [{"te', "[DONE]"], "no JSON"),
        (["hello", "[DONE]"], "no JSON"),
        ([{"choices": 5}, "[DONE]"], "Expected `array`"),
        ([[1], "[DONE]"], "Expected `object`"),
    ],
)
def test_a_stream_that_is_not_whole_is_refused(data: list[Any], message: str) -> None:
    with pytest.raises(BadReply, match=message):
        assemble(events(*data))


def test_an_error_object_inside_a_stream_is_the_servers() -> None:
    with pytest.raises(StatusError, match="engine died"):
        assemble(events(chunk("a"), {"error": {"message": "engine died"}}, "[DONE]"))


@pytest.mark.parametrize("name", [n for n in wires.names("openai_completions") if "stream" in n])
def test_a_recorded_stream_cut_anywhere_is_refused(name: str) -> None:
    whole = wires.events_of(wires.load("openai_completions", name).body)
    assemble(whole)
    for n in range(len(whole)):
        with pytest.raises(BadReply):
            assemble(whole[:n])


@given(st.lists(st.text(max_size=5), min_size=1, max_size=6), st.integers(1, 3))
def test_streamed_equals_plain(texts: list[str], n: int) -> None:
    parts = [chunk(t, None, i) for t in texts for i in range(n)] + [chunk("", "stop", i) for i in range(n)]
    plain = {"choices": [{"index": i, "text": "".join(texts), "finish_reason": "stop"} for i in range(n)]}
    request = Request("m", Input(text="x"), sampling=Sampling(n=n))
    streamed = DIALECT.lift(request, assemble(events(*parts, "[DONE]")))
    assert [(c.text, c.finish) for c in streamed.choices] == [
        (c.text, c.finish) for c in DIALECT.lift(request, json.dumps(plain).encode()).choices
    ]
