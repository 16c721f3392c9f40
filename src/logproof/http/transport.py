"""One HTTP request, sent until it is answered: admission, time limits, retries, typed errors.

`Transport` is the only place of logproof that sends HTTP. A reply is whole or an error: a body cut
before its stated length, a stream with an error object inside, a redirect, a body over the limit never
become a `WireReply`. Redirects are not followed; cookies and proxies of the environment are not used.

    async with Transport(endpoint("http://127.0.0.1:8000")) as transport:
        reply = await transport.send(WireRequest("/v1/completions", b'{"prompt": "Hi"}'))
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self

import aiohttp
import msgspec

from logproof.errors import EndpointError, InvalidRequest, TransportError, UsageError
from logproof.http.connection_errors import explain, is_drop
from logproof.http.connections import ConnectionPool, PooledConnection
from logproof.http.deadlines import Deadlines
from logproof.http.endpoint import Endpoint
from logproof.http.exchange import SseEvent, WireReply, WireRequest, header
from logproof.http.faults import (
    MAX_ERROR_BYTES,
    WireFault,
    check_type,
    event_fault,
    read_fault,
    redirected,
    status_error,
)
from logproof.http.retry import CONNECTION, FINAL, TIMEOUT, Headers, RetryPolicy, decide
from logproof.http.sse import SseParser

MAX_REPLY_BYTES = 256 * 1024 * 1024
"""Largest body that is read, after decompression."""

_PATH = re.compile(r"/[!-~]*")

OnRetry = Callable[[EndpointError, int], None]
"""Called before a failed attempt is repeated, with its error and how often the request was sent."""


class Sender(Protocol):
    """What the client needs of a transport; tests and third parties may pass their own."""

    async def send(self, request: WireRequest) -> WireReply:
        """The reply with a 2xx status, or an EndpointError."""
        ...


class _Failure(msgspec.Struct):
    """A failed attempt: the error to raise if it was the last, and what `decide` needs to know.

    stale: the server had closed a reused connection, as it may at any time.
    """

    error: EndpointError
    status: int | None = None
    headers: Headers = ()
    code: str | None = None
    delay_s: float | None = None
    stale: bool = False


class Transport:
    """HTTP to one endpoint over kept-alive connections; an async context manager.

    limit: most requests in flight, None for no limit; the others wait in `send`, where no time limit
    runs yet. max_reply_bytes: largest body read. rng, sleep: chance and waiting of the retries. on_retry: called
    for each failed attempt that is repeated.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        policy: RetryPolicy | None = None,
        limit: int | None = None,
        max_reply_bytes: int = MAX_REPLY_BYTES,
        rng: random.Random | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        on_retry: OnRetry | None = None,
    ) -> None:
        if limit is not None and limit < 1:
            raise UsageError(f"the limit of requests in flight is {limit}", hint="give 1 or more")
        self.endpoint = endpoint
        self._policy = policy or RetryPolicy()
        self._admission = asyncio.Semaphore(limit) if limit is not None else None
        self._max_reply_bytes = max_reply_bytes
        self._rng = rng or random.SystemRandom()
        self._sleep = sleep
        self._on_retry = on_retry
        self._connections: ConnectionPool | None = None

    async def __aenter__(self) -> Self:
        self._connections = ConnectionPool(self.endpoint)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connections is not None:
            await self._connections.close()
            self._connections = None

    async def send(self, request: WireRequest) -> WireReply:
        """Send until answered. Raises TransportError, TimeoutFired, StatusError or BadReply after the
        retries that the policy allows; the error's `attempts` says how often it was sent.
        """
        if not _PATH.fullmatch(request.path):
            raise InvalidRequest(f"the path {request.path!r} must begin with / and be percent-encoded")
        if self._admission is None:
            return await self._persist(request)
        async with self._admission:
            return await self._persist(request)

    async def _persist(self, request: WireRequest) -> WireReply:
        """Attempts until one is answered or the policy gives up."""
        sends, forgiven = 0, 0
        while True:
            sends += 1
            outcome = await self._attempt(request, sends)
            if isinstance(outcome, WireReply):
                return outcome
            if outcome.stale and not forgiven:
                forgiven = 1
                continue
            verdict = decide(
                outcome.status,
                outcome.headers,
                outcome.code,
                sends - forgiven,
                self._policy,
                named_delay_s=outcome.delay_s,
                roll=self._rng.random(),
                now=time.time(),
            )
            if not verdict.retry:
                raise _after(outcome.error, sends)
            if self._on_retry is not None:
                self._on_retry(outcome.error, sends)
            await self._sleep(verdict.delay_s)

    async def _attempt(self, request: WireRequest, number: int) -> WireReply | _Failure:
        if self._connections is None:
            raise RuntimeError("a Transport sends only inside `async with`")
        deadlines = Deadlines(self.endpoint.timeouts)
        connection = PooledConnection(self._connections)
        try:
            async with deadlines:
                return await self._exchange(connection, request, number, deadlines)
        except aiohttp.ConnectionTimeoutError:
            return _Failure(deadlines.timeout_error("connect"), code=CONNECTION)
        except TimeoutError:
            return _Failure(deadlines.timeout_error(), code=TIMEOUT)
        except aiohttp.ClientError as error:
            problem, code = explain(error, self.endpoint)
            stale = is_drop(error) and not connection.fresh and deadlines.first_byte_s is None
            return _Failure(problem, code=code, stale=stale)
        except EndpointError as error:
            return _Failure(error, code=FINAL)
        finally:
            connection.free()

    async def _exchange(
        self, connection: PooledConnection, request: WireRequest, number: int, deadlines: Deadlines
    ) -> WireReply | _Failure:
        status, headers, content = await connection.ask(request)
        deadlines.head()
        if not 200 <= status < 300:
            return await self._refusal(status, headers, content, deadlines)
        check_type(_media_type(headers), request.stream, self.endpoint)
        collected = _Collector(request.stream)
        await self._read(content, deadlines, collected.take)
        if fault := collected.close():
            return self._failure(fault.status or 500, headers, fault)
        reply = WireReply(
            status=status,
            headers=headers,
            body=collected.body(),
            events=collected.events(),
            seconds=deadlines.elapsed(),
            attempts=number,
            first_byte_seconds=deadlines.first_byte_s,
        )
        return self._masked(reply) if self.endpoint.occurs_in(reply.body) else reply

    def _masked(self, reply: WireReply) -> WireReply:
        """A reply that repeats the key, without it: what comes after may print or store any of its texts."""
        mask = self.endpoint.mask
        events = reply.events
        return msgspec.structs.replace(
            reply,
            body=mask(reply.body.decode(errors="surrogateescape")).encode(errors="surrogateescape"),
            events=tuple(SseEvent(e.event, mask(e.data)) for e in events) if events is not None else None,
        )

    async def _read(
        self, content: aiohttp.StreamReader, deadlines: Deadlines, take: Callable[[bytes], bool | None]
    ) -> None:
        """Give each piece of the body to `take`, to the end or until it has seen enough."""
        size = 0
        while piece := await content.readany():
            size += len(piece)
            if size > self._max_reply_bytes:
                text = f"the reply of {self.endpoint.display} is larger than {self._max_reply_bytes} bytes"
                raise TransportError(text, hint="ask for less in one request (fewer top logprobs, a shorter prompt)")
            deadlines.piece()
            if take(piece):
                return

    async def _refusal(
        self, status: int, headers: Headers, content: aiohttp.StreamReader, deadlines: Deadlines
    ) -> _Failure:
        """The failure of a status that is not 2xx; what came of a body that breaks off still counts."""
        if 300 <= status < 400:
            return _Failure(redirected(status, header(headers, "location"), self.endpoint), code=FINAL)
        body = bytearray()

        def take(piece: bytes) -> bool:
            body.extend(piece)
            return len(body) >= MAX_ERROR_BYTES

        with suppress(aiohttp.ClientError):
            await self._read(content, deadlines, take)
        return self._failure(status, headers, read_fault(bytes(body)))

    def _failure(self, status: int, headers: Headers, fault: WireFault) -> _Failure:
        error = status_error(status, fault, self.endpoint)
        return _Failure(error, status, headers, error.code, fault.delay_s)


class _Collector:
    """The pieces of one body, and its events when it is a stream, up to an error object among them."""

    def __init__(self, stream: bool) -> None:
        self._parser = SseParser() if stream else None
        self._pieces: list[bytes] = []
        self._events: list[SseEvent] = []
        self._fault: WireFault | None = None

    def take(self, piece: bytes) -> bool:
        """Keep a piece; True when the rest is not wanted."""
        self._pieces.append(piece)
        return self._parser is not None and self._keep(self._parser.feed(piece))

    def close(self) -> WireFault | None:
        """End of the body: the error object that the stream held, or None."""
        if self._parser is not None and self._fault is None:
            self._keep(self._parser.close())
        return self._fault

    def body(self) -> bytes:
        """All bytes."""
        return b"".join(self._pieces)

    def events(self) -> tuple[SseEvent, ...] | None:
        """All events, None when no stream was asked."""
        return None if self._parser is None else tuple(self._events)

    def _keep(self, events: list[SseEvent]) -> bool:
        self._events += events
        self._fault = next(filter(None, map(event_fault, events)), None)
        return self._fault is not None


def _media_type(headers: Headers) -> str:
    return (header(headers, "content-type") or "").partition(";")[0].strip().lower()


def _after(error: EndpointError, sends: int) -> EndpointError:
    """The error that ends a request, with the number of times it was sent."""
    error.attempts = sends
    if sends > 1:
        error.message += f" (sent {sends} times)"
    return error
