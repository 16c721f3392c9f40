"""Streams of OpenAI's wires: an end mark, no chunk that is foreign, every choice finished."""

from __future__ import annotations

import json

import msgspec
import pytest

from logproof.dialects.common.completions import CompletionsChoice
from logproof.dialects.common.openai_stream import finished, read_chunks
from logproof.errors import BadReply, StatusError
from logproof.http.exchange import SseEvent

OBJECTS = msgspec.json.Decoder(dict[str, int])


def events(*data: object) -> list[SseEvent]:
    return [SseEvent(None, d if isinstance(d, str) else json.dumps(d)) for d in data]


def test_chunks_come_in_order_without_the_mark() -> None:
    assert read_chunks(events({"a": 1}, {"a": 2}, "[DONE]"), OBJECTS) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("data", [[], [{"a": 1}], ["[DONE]", {"a": 1}]])
def test_a_stream_without_its_mark_at_the_end_was_cut(data: list[object]) -> None:
    with pytest.raises(BadReply, match="it was cut"):
        read_chunks(events(*data), OBJECTS)


def test_an_error_counts_before_the_missing_mark() -> None:
    with pytest.raises(StatusError, match="engine died"):
        read_chunks(events({"error": {"message": "engine died"}}), OBJECTS)
    with pytest.raises(BadReply, match="no JSON"):
        read_chunks(events('{"a', "[DONE]"), OBJECTS)


def test_choices_are_whole_and_in_order() -> None:
    one, two = (CompletionsChoice("", i, finish_reason="stop") for i in range(2))
    assert finished({1: two, 0: one}) == [one, two]
    two.finish_reason = None
    for by_index in ({1: two, 0: one}, {}):
        with pytest.raises(BadReply, match="before choices"):
            finished(by_index)
