"""Server-sent events from bytes, as the WHATWG text/event-stream grammar has them.

The transport feeds chunks cut anywhere; the same bytes give the same events for every cut. `[DONE]`
is an event like any other; comments and the fields `id` and `retry` are skipped.
"""

from __future__ import annotations

import re

from logproof.errors import BadReply, TransportError
from logproof.http.exchange import SseEvent

MAX_EVENT_BYTES = 64 * 1024 * 1024
"""Largest single event. SGLang repeats the whole reply so far in each event, prompt channels included."""

MAX_EVENTS = 1_000_000
"""Most events of one stream."""

_LINE_END = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"


class SseParser:
    """Incremental parser of one stream: `feed` each chunk, then `close` once.

    Raises TransportError when an event or the number of events passes its limit, BadReply for bytes
    that are not UTF-8.
    """

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES, max_events: int = MAX_EVENTS) -> None:
        self._max_event_bytes = max_event_bytes
        self._max_events = max_events
        self._buffer = bytearray()
        self._scanned = 0
        self._after_cr = False
        self._at_start = True
        self._name: str | None = None
        self._data: list[str] = []
        self._size = 0
        self._count = 0

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that this chunk completes, in order."""
        if not chunk:
            return []
        self._buffer += chunk[1:] if self._after_cr and chunk[0] == 0x0A else chunk
        self._after_cr = chunk[-1] == 0x0D
        events: list[SseEvent] = []
        start, buffer = 0, self._buffer
        while end := _LINE_END.search(buffer, max(start, self._scanned)):
            self._line(bytes(buffer[start : end.start()]), events)
            start = end.end()
        del buffer[:start]
        self._scanned = len(buffer)
        self._check_size(self._size + len(buffer))
        return events

    def close(self) -> list[SseEvent]:
        """The last event, when the stream ended without the blank line after it.

        Nothing is lost in silence: a text cut short reaches the reader, whose JSON decoder refuses it.
        """
        events: list[SseEvent] = []
        if self._buffer:
            self._line(bytes(self._buffer), events)
            self._buffer.clear()
        self._dispatch(events)
        return events

    def _line(self, line: bytes, events: list[SseEvent]) -> None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if not line:
            self._dispatch(events)
            return
        self._size += len(line)
        self._check_size(self._size)
        field, _, value = _decode(line).partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value or None

    def _dispatch(self, events: list[SseEvent]) -> None:
        if self._data:
            self._count += 1
            if self._count > self._max_events:
                raise TransportError(f"the stream holds more than {self._max_events} events")
            events.append(SseEvent(self._name, "\n".join(self._data)))
        self._name, self._data, self._size = None, [], 0

    def _check_size(self, size: int) -> None:
        if size > self._max_event_bytes:
            raise TransportError(f"an event of the stream is larger than {self._max_event_bytes} bytes")


def _decode(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise BadReply(f"the stream is not UTF-8 ({error.reason} at byte {error.start} of a line)") from None
