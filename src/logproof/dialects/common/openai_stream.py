"""What the streams of OpenAI's completions and chat wires share: chunks up to the end mark, choices all finished."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from logproof.dialects.common.decode import decode
from logproof.dialects.common.openai_reply import IndexedChoice
from logproof.errors import BadReply
from logproof.http.exchange import SseEvent
from logproof.http.faults import error_in_body

T = TypeVar("T")
C = TypeVar("C", bound=IndexedChoice)

DONE = "[DONE]"


def read_chunks(events: Sequence[SseEvent], decoder: msgspec.json.Decoder[T]) -> list[T]:
    """The chunks of a stream that ends with `[DONE]`.

    Raises StatusError for an error object among them, BadReply for anything else foreign or a missing mark.
    """
    chunks = [_read(event, decoder) for event in events if event.data != DONE]
    if not events or events[-1].data != DONE:
        raise BadReply("the stream ended before its [DONE] mark: it was cut", hint="send the request again")
    return chunks


def _read(event: SseEvent, decoder: msgspec.json.Decoder[T]) -> T:
    fault = error_in_body(event.data)
    if fault is not None:
        raise fault
    return decode(decoder, event.data.encode())


def finished(by_index: Mapping[int, C]) -> list[C]:
    """The choices in order. Raises BadReply where one did not finish, or there is none."""
    unfinished = [i for i, choice in by_index.items() if choice.finish_reason is None]
    if unfinished or not by_index:
        raise BadReply(f"the stream ended before choices {unfinished or 'any'} finished")
    return [by_index[i] for i in sorted(by_index)]
