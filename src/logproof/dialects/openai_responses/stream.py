"""A streamed reply of the Responses wire: the response object of its last event is the plain reply."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from logproof.dialects.common.decode import decode
from logproof.errors import BadReply
from logproof.http.exchange import SseEvent
from logproof.http.faults import error_in_body

ENDS = ("response.completed", "response.incomplete", "response.failed")


class ResponsesEvent(msgspec.Struct, gc=False):
    """What is read of any event; events of other types pass unread."""

    type: str
    response: dict[str, object] | None = None
    item: dict[str, object] | None = None
    output_index: int | None = None


_EVENT = msgspec.json.Decoder(ResponsesEvent)


def assemble(events: Sequence[SseEvent]) -> bytes:
    """The plain reply of a whole stream.

    A finished item may hold fields that the last event leaves out (encrypted reasoning); they are filled in.
    Raises BadReply for a stream without its last event or with a broken one, StatusError for an error event.
    """
    read = [_read(event) for event in events if event.data != "[DONE]"]
    ends = [event for event in read if event.type in ENDS]
    if len(ends) != 1 or ends[0].response is None:
        raise BadReply(
            f"the stream holds {len(ends)} of its one last event ({', '.join(ENDS)}): it was cut or joined",
            hint="send the request again",
        )
    whole = dict(ends[0].response)
    done = {e.output_index: e.item for e in read if e.type == "response.output_item.done" and e.item is not None}
    output = whole.get("output")
    if isinstance(output, list):
        whole["output"] = [_filled(item, done.get(i)) for i, item in enumerate(output)]
    return msgspec.json.encode(whole)


def _read(event: SseEvent) -> ResponsesEvent:
    fault = error_in_body(event.data)
    if fault is not None:
        raise fault
    return decode(_EVENT, event.data.encode())


def _filled(item: object, done: dict[str, object] | None) -> object:
    """An item with what its own event told and the last one leaves out."""
    if not isinstance(item, dict) or done is None or done.get("id") != item.get("id"):
        return item
    missing = {k: v for k, v in done.items() if v is not None and item.get(k) is None}
    return {**item, **missing}
