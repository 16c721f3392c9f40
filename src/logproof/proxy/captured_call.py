"""One captured call: plan it, forward it, strip its reply as it passes, and make its `Exchange`."""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import aiohttp
import msgspec
from starlette.types import Message, Scope, Send

from logproof.proxy import strip
from logproof.proxy.captured_exchange import CapturedExchange, sha256
from logproof.proxy.event_blocks import Blocks
from logproof.proxy.headers import Raw, beside, end_to_end, mask, secrets, with_length
from logproof.proxy.request_plan import Asks, RequestPlan, plan
from logproof.proxy.upstream import Upstream, UpstreamFault, read

_REFUSED = (400, 422)
"""Statuses after which the client's own request is sent: it must see the refusal of a direct call, or its reply."""


class CaptureLimits(msgspec.Struct, frozen=True):
    """Bytes. request: longest captured body. reply: longest reply that is held for the record and for stripping.

    event: longest event of a stream.
    """

    request: int = 32 << 20
    reply: int = 64 << 20
    event: int = 16 << 20


class Tally(msgspec.Struct):
    """What passes without the usual care. unplanned: bodies that are no JSON object. unstripped: replies that could
    not be read and went out as the engine sent them. oversized: replies too long to record. refilled: requests sent
    again as the client wrote them, since the engine refused them with the proxy's fields."""

    unplanned: int = 0
    unstripped: int = 0
    oversized: int = 0
    refilled: int = 0


class CapturedCall:
    """One call on a captured route. `exchange` is None until there is something to record."""

    def __init__(self, upstream: Upstream, limits: CaptureLimits, tally: Tally, scope: Scope, send: Send) -> None:
        self._upstream = upstream
        self._limits = limits
        self._tally = tally
        self._scope = scope
        self._send = send
        self._secrets = secrets(scope["headers"], scope["query_string"])
        self._started = datetime.now(UTC)
        self._clock = time.perf_counter()
        self._head_s = 0.0
        self._got: list[bytes] = []
        self._size = 0
        self._served = hashlib.sha256()
        self._reply: aiohttp.ClientResponse | None = None
        self._complete = False
        self._streamed = False
        self._encoded = False
        self._plan = RequestPlan(b"")
        self._sent = b""

    async def run(self, target: str, body: bytes, asks: Asks) -> None:
        """Serve the call. Raises UpstreamFault before anything was sent to the client; cuts the reply after that."""
        self._sent = body
        self._plan = self._planned(body, asks)
        if await self._try(target, self._plan, last=not self._plan.added):
            return
        self._tally.refilled += 1
        self._plan = RequestPlan(body)
        await self._try(target, self._plan, last=True)

    def _planned(self, body: bytes, asks: Asks) -> RequestPlan:
        try:
            return plan(self._scope["path"], body, asks)
        except ValueError:
            self._tally.unplanned += 1
            return RequestPlan(body)

    async def _try(self, target: str, planned: RequestPlan, *, last: bool) -> bool:
        """Forward once; False where the engine refused what the proxy added and nothing went out yet."""
        sent = end_to_end(self._scope["headers"], b"host", b"content-length", b"accept-encoding", b"expect")
        sent.append((b"accept-encoding", b"identity"))
        async with self._upstream.send("POST", target, sent, planned.body) as reply:
            if reply.status in _REFUSED and not last:
                async for _ in read(reply):
                    pass
                return False
            self._reply = reply
            self._head_s = time.perf_counter() - self._clock
            await self._pass(reply)
        return True

    async def _pass(self, reply: aiohttp.ClientResponse) -> None:
        self._streamed = reply.headers.get("content-type", "").startswith("text/event-stream")
        self._encoded = reply.headers.get("content-encoding", "identity") != "identity"
        if self._encoded and self._plan.hidden:
            self._tally.unstripped += 1
        if self._encoded or not self._plan.hidden:
            await self._stream(reply, self._kept(reply), self._head(reply))
        elif self._streamed:
            await self._stream(reply, self._events(reply), self._head(reply, b"content-length"))
        else:
            await self._whole(reply)

    async def _whole(self, reply: aiohttp.ClientResponse) -> None:
        """A plain reply: held, stripped, sent; one that is too long to hold goes out as it is."""
        pieces = self._kept(reply)
        async for _ in pieces:
            if self._size > self._limits.reply:
                self._tally.unstripped += 1
                await self._stream(reply, _chain(b"".join(self._got), pieces), self._head(reply))
                return
        body = self._stripped(b"".join(self._got))
        await self._begin(reply.status, with_length(self._head(reply), len(body)))
        await self._piece(body, more=False)
        self._complete = True

    def _stripped(self, body: bytes) -> bytes:
        try:
            return strip.reply(body, self._plan.hidden)
        except ValueError:
            self._tally.unstripped += 1
            return body

    async def _stream(self, reply: aiohttp.ClientResponse, pieces: AsyncIterator[bytes], head: list[Raw]) -> None:
        """Send pieces as they come; a cut of the engine's is a cut for the client."""
        await self._begin(reply.status, head)
        try:
            async for piece in pieces:
                await self._piece(piece, more=True)
        except UpstreamFault:
            return
        await self._piece(b"", more=False)
        self._complete = True

    async def _events(self, reply: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        blocks = Blocks(self._limits.event)
        async for piece in self._kept(reply):
            try:
                done = blocks.feed(piece)
            except ValueError:
                raise UpstreamFault(502, "an event of the stream is too long") from None
            if ready := b"".join(self._stripped_event(block) for block in done):
                yield ready
        if rest := blocks.rest():
            yield rest

    def _stripped_event(self, block: bytes) -> bytes:
        try:
            return strip.event(block, self._plan.hidden)
        except ValueError:
            self._tally.unstripped += 1
            return block

    async def _kept(self, reply: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        """The reply's pieces, kept for the record up to the limit."""
        async for piece in read(reply):
            self._size += len(piece)
            if self._size - len(piece) <= self._limits.reply:
                self._got.append(piece)
            yield piece

    def _head(self, reply: aiohttp.ClientResponse, *without: bytes) -> list[Raw]:
        return beside(end_to_end(reply.raw_headers, *without), self._upstream.root)

    async def _begin(self, status: int, head: list[Raw]) -> None:
        await self._send({"type": "http.response.start", "status": status, "headers": head})

    async def _piece(self, body: bytes, *, more: bool) -> None:
        self._served.update(body)
        message: Message = {"type": "http.response.body", "body": body, "more_body": more}
        await self._send(message)

    def exchange(self) -> CapturedExchange | None:
        """What to record; None where no reply came or it is longer than a record may be."""
        if self._reply is None:
            return None
        if self._size > self._limits.reply:
            self._tally.oversized += 1
            return None
        reply = b"".join(self._got)
        return CapturedExchange(
            path=self._scope["path"],
            started_at=self._started.isoformat(timespec="milliseconds"),
            sent=mask(self._sent, self._secrets),
            forwarded=mask(self._plan.body, self._secrets),
            sent_sha256=sha256(self._sent),
            forwarded_sha256=sha256(self._plan.body),
            status=self._reply.status,
            content_type=self._reply.headers.get("content-type", ""),
            # An encoded reply cannot be read here, nor searched for a credential.
            reply=b"" if self._encoded else mask(reply, self._secrets),
            reply_sha256=sha256(reply),
            served_sha256=self._served.hexdigest(),
            streamed=self._streamed,
            complete=self._complete,
            added=self._plan.added,
            width=self._plan.width,
            seconds=time.perf_counter() - self._clock,
            first_byte_seconds=self._head_s,
        )


async def _chain(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in rest:
        yield piece
