"""The records that cross the wire: one request, one reply, one event of a streamed reply.

Dialects build `WireRequest` and read `WireReply`; the transport turns one into the other. Nothing
here knows what a body means.
"""

from __future__ import annotations

import msgspec


class WireRequest(msgspec.Struct, frozen=True, gc=False):
    """One HTTP request below an endpoint's root.

    path: begins with "/", appended to the root, query included. body: the JSON text to send, empty
    for GET. headers: pairs beside those of the endpoint, never a key. stream: the reply must be
    server-sent events, and comes back as `WireReply.events`.
    """

    path: str
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    stream: bool = False
    method: str = "POST"


class SseEvent(msgspec.Struct, frozen=True, gc=False):
    """One server-sent event. event: its name, or None. data: its data lines joined by line feeds."""

    event: str | None
    data: str


class WireReply(msgspec.Struct, frozen=True, gc=False):
    """A whole reply with a 2xx status.

    headers: pairs, names in lower case, in wire order. body: every byte of the body after
    decompression, also of a stream. events: the events of a stream, None when no stream was asked.
    seconds: from sending the last attempt to its last byte. attempts: how often the request was
    sent. first_byte_seconds: from sending the last attempt to the head of its reply.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    events: tuple[SseEvent, ...] | None = None
    seconds: float = 0.0
    attempts: int = 1
    first_byte_seconds: float | None = None

    def header(self, name: str) -> str | None:
        """First value of a header, or None; `name` in any case."""
        return header(self.headers, name)


def header(headers: tuple[tuple[str, str], ...], name: str) -> str | None:
    """First value of a header among pairs whose names are in lower case, or None."""
    lower = name.lower()
    return next((value for key, value in headers if key == lower), None)
