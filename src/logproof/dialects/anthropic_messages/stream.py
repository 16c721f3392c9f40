"""The Messages event stream, rebuilt to the plain reply.

Blocks are opened, filled by deltas and closed, by index; `message_delta` brings the stop reason and the counts so
far. Events of unknown types are skipped, as the wire asks; a delta of unknown type would lose content and is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from logproof.dialects.common.decode import decode
from logproof.errors import BadReply
from logproof.http.exchange import SseEvent
from logproof.http.faults import error_in_body

Json = dict[str, object]


class MessagesEvent(msgspec.Struct, gc=False):
    """What the events of all types hold."""

    type: str
    index: int = -1
    message: Json | None = None
    content_block: Json | None = None
    delta: Json | None = None
    usage: Json | None = None


_EVENT = msgspec.json.Decoder(MessagesEvent)
_VALUE = msgspec.json.Decoder(object)


class _Stream:
    """The reply so far."""

    def __init__(self) -> None:
        self.message: Json | None = None
        self.blocks: list[Json] = []
        self.partial: dict[int, list[str]] = {}
        self.open: set[int] = set()
        self.stopped = False

    def message_start(self, event: MessagesEvent) -> None:
        if self.message is not None or event.message is None:
            raise BadReply("a second start, or one without message")
        self.message = dict(event.message)

    def content_block_start(self, event: MessagesEvent) -> None:
        if event.index != len(self.blocks) or event.content_block is None:
            raise BadReply(f"block {event.index} begins where {len(self.blocks)} was next")
        self.blocks.append(dict(event.content_block))
        self.open.add(event.index)

    def content_block_delta(self, event: MessagesEvent) -> None:
        if event.index not in self.open or event.delta is None:
            raise BadReply(f"a delta for block {event.index}, which is not open")
        block, delta = self.blocks[event.index], event.delta
        kind = delta.get("type")
        if kind == "input_json_delta":
            self.partial.setdefault(event.index, []).append(_text(delta, "partial_json"))
        elif kind == "citations_delta":
            cited = block.get("citations")
            block["citations"] = [*(cited if isinstance(cited, list) else []), delta.get("citation")]
        elif kind in ("text_delta", "thinking_delta", "signature_delta"):
            name = str(kind).removesuffix("_delta")
            block[name] = str(block.get(name) or "") + _text(delta, name)
        else:
            raise BadReply(f"a delta of unknown type {kind!r}")

    def content_block_stop(self, event: MessagesEvent) -> None:
        if event.index not in self.open:
            raise BadReply(f"the end of block {event.index}, which is not open")
        self.open.remove(event.index)
        whole = "".join(self.partial.get(event.index, ()))
        if not whole:
            return
        try:
            _VALUE.decode(whole)
        except (msgspec.DecodeError, RecursionError):
            raise BadReply(f"the arguments of block {event.index} are no JSON: the call was cut") from None
        self.blocks[event.index]["input"] = msgspec.Raw(whole.encode())

    def message_delta(self, event: MessagesEvent) -> None:
        if self.message is None:
            raise BadReply("a delta before the start")
        self.message.update({k: v for k, v in (event.delta or {}).items() if v is not None})
        counts = self.message.get("usage")
        known = counts if isinstance(counts, dict) else {}
        self.message["usage"] = {**known, **{k: v for k, v in (event.usage or {}).items() if v is not None}}

    def message_stop(self, event: MessagesEvent) -> None:
        self.stopped = True


_HANDLERS: dict[str, Callable[[_Stream, MessagesEvent], None]] = {
    name: getattr(_Stream, name)
    for name in (
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    )
}


def assemble(events: Sequence[SseEvent]) -> bytes:
    """The plain reply.

    Raises BadReply for a stream without `message_stop`, with a block left open, or with events out of order;
    StatusError for an error event.
    """
    stream = _Stream()
    for i, event in enumerate(events):
        if event.data == "[DONE]" and stream.stopped:
            continue
        _take(stream, event, f"/events/{i}")
    if not stream.stopped or stream.message is None:
        raise BadReply("the stream ended before its message_stop: it was cut", hint="send the request again")
    if stream.open:
        raise BadReply(f"the stream ended inside block {min(stream.open)}", hint="send the request again")
    return msgspec.json.encode({**stream.message, "content": stream.blocks})


def _take(stream: _Stream, event: SseEvent, path: str) -> None:
    fault = error_in_body(event.data)
    if fault is not None:
        raise fault
    found = decode(_EVENT, event.data.encode())
    handler = _HANDLERS.get(found.type)
    if handler is None:
        return
    if stream.stopped:
        raise BadReply("events after message_stop", path=path)
    try:
        handler(stream, found)
    except BadReply as error:
        raise BadReply(str(error).partition(": ")[2], path=path) from None


def _text(delta: Json, name: str) -> str:
    value = delta.get(name)
    if not isinstance(value, str):
        raise BadReply(f"a delta without {name}")
    return value
