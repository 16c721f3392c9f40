"""One HTTP request, sent until it is answered: admission, time limits, retries, typed errors.

`Transport` is the only place of logproof that sends HTTP. A reply is whole or an error: a body cut
before its stated length, a stream with an error object inside, a redirect, a body over the limit never
become a `WireReply`. Cookies, proxies from the environment and redirects are off; gzip and deflate are
accepted, whatever optional decoders are installed.

    async with Transport(endpoint("http://127.0.0.1:8000")) as transport:
        reply = await transport.send(WireRequest("/v1/completions", b'{"prompt": "Hi"}'))
"""

from __future__ import annotations

import asyncio
import io
import random
import re
import ssl
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from types import SimpleNamespace, TracebackType
from typing import Protocol, Self
from weakref import WeakSet

import aiohttp
import msgspec
from aiohttp.connector import Connection
from aiohttp.tracing import Trace
from yarl import URL

from logproof.errors import EndpointError, InvalidRequest, TransportError, UsageError
from logproof.version import VERSION
from logproof.wire.endpoint import Endpoint
from logproof.wire.faults import MAX_ERROR_BYTES, Fault, check_type, event_fault, read_fault, redirected, status_error
from logproof.wire.limits import Limits
from logproof.wire.lost import explain, is_drop
from logproof.wire.message import SseEvent, WireReply, WireRequest, header
from logproof.wire.retry import CONNECTION, FINAL, TIMEOUT, Headers, RetryPolicy, decide
from logproof.wire.sse import SseParser

MAX_REPLY_BYTES = 256 * 1024 * 1024
"""Largest body that is read, after decompression."""

_KEEP_IDLE_S = 4.0
"""Idle connections are dropped before uvicorn (vLLM, SGLang) drops them, which it does after 5 s."""

_PATH = re.compile(r"/[!-~]*")
_READ_BUFFER = 2**18
_ONE_PIECE = 2**20
"""Bodies up to this size are written at once; aiohttp warns about larger ones."""


_LINK: ContextVar[SimpleNamespace] = ContextVar("link")
"""The attempt that this task makes. fresh: whether it opened, or was opening, a connection of its own."""


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
    runs yet. max_reply_bytes: largest body read. rng, sleep: chance and waiting of the retries.
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
    ) -> None:
        if limit is not None and limit < 1:
            raise UsageError(f"the limit of requests in flight is {limit}", hint="give 1 or more")
        self.endpoint = endpoint
        self._root = str(URL(endpoint.root)).rstrip("/")
        self._policy = policy or RetryPolicy()
        self._admission = asyncio.Semaphore(limit) if limit is not None else None
        self._max_reply_bytes = max_reply_bytes
        self._rng = rng or random.SystemRandom()
        self._sleep = sleep
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = _session(self.endpoint)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

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
            await self._sleep(verdict.delay_s)

    async def _attempt(self, request: WireRequest, number: int) -> WireReply | _Failure:
        if self._session is None:
            raise RuntimeError("a Transport sends only inside `async with`")
        limits = Limits(self.endpoint.timeouts)
        link = SimpleNamespace(fresh=False)
        _LINK.set(link)
        try:
            async with limits.timer:
                return await self._exchange(self._session, request, number, limits)
        except aiohttp.ConnectionTimeoutError:
            return _Failure(limits.fired("connect"), code=CONNECTION)
        except TimeoutError:
            return _Failure(limits.fired(), code=TIMEOUT)
        except aiohttp.ClientError as error:
            told, code = explain(error, self.endpoint)
            return _Failure(told, code=code, stale=is_drop(error) and not link.fresh and limits.first_byte_s is None)
        except EndpointError as error:
            return _Failure(error, code=FINAL)

    async def _exchange(
        self, session: aiohttp.ClientSession, request: WireRequest, number: int, limits: Limits
    ) -> WireReply | _Failure:
        body = request.body if len(request.body) <= _ONE_PIECE else io.BytesIO(request.body)
        async with session.request(
            request.method,
            URL(self._root + request.path, encoded=True),
            data=body or None,
            headers=request.headers,
            allow_redirects=False,
        ) as response:
            limits.head()
            headers = tuple((name.lower(), value) for name, value in response.headers.items())
            if not 200 <= response.status < 300:
                return await self._refusal(response, headers, limits)
            check_type(response.content_type, request.stream, self.endpoint)
            collected = _Collector(request.stream)
            await self._read(response, limits, collected.take)
            if fault := collected.close():
                return self._failure(fault.status or 500, headers, fault)
            reply = WireReply(
                status=response.status,
                headers=headers,
                body=collected.body(),
                events=collected.events(),
                seconds=limits.elapsed(),
                attempts=number,
                first_byte_seconds=limits.first_byte_s,
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
        self, response: aiohttp.ClientResponse, limits: Limits, take: Callable[[bytes], bool | None]
    ) -> None:
        """Give each piece of the body to `take`, to the end or until it has seen enough."""
        size = 0
        while piece := await response.content.readany():
            size += len(piece)
            if size > self._max_reply_bytes:
                text = f"the reply of {self.endpoint.display} is larger than {self._max_reply_bytes} bytes"
                raise TransportError(text, hint="ask for less in one request (fewer top logprobs, a shorter prompt)")
            limits.piece()
            if take(piece):
                return

    async def _refusal(self, response: aiohttp.ClientResponse, headers: Headers, limits: Limits) -> _Failure:
        """The failure of a status that is not 2xx; what came of a body that breaks off still counts."""
        if 300 <= response.status < 400:
            return _Failure(redirected(response.status, header(headers, "location"), self.endpoint), code=FINAL)
        body = bytearray()

        def take(piece: bytes) -> bool:
            body.extend(piece)
            return len(body) >= MAX_ERROR_BYTES

        with suppress(aiohttp.ClientError):
            await self._read(response, limits, take)
        return self._failure(response.status, headers, read_fault(bytes(body)))

    def _failure(self, status: int, headers: Headers, fault: Fault) -> _Failure:
        error = status_error(status, fault, self.endpoint)
        return _Failure(error, status, headers, error.code, fault.delay_s)


class _Collector:
    """The pieces of one body, and its events when it is a stream, up to an error object among them."""

    def __init__(self, stream: bool) -> None:
        self._parser = SseParser() if stream else None
        self._pieces: list[bytes] = []
        self._events: list[SseEvent] = []
        self._fault: Fault | None = None

    def take(self, piece: bytes) -> bool:
        """Keep a piece; True when the rest is not wanted."""
        self._pieces.append(piece)
        return self._parser is not None and self._keep(self._parser.feed(piece))

    def close(self) -> Fault | None:
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


def _session(endpoint: Endpoint) -> aiohttp.ClientSession:
    """A session whose connections are limited by admission alone."""
    return aiohttp.ClientSession(
        connector=_Connector(limit=0, keepalive_timeout=_KEEP_IDLE_S, ssl=_tls(endpoint.verify)),
        timeout=aiohttp.ClientTimeout(total=None, connect=endpoint.timeouts.connect),
        headers={
            "Content-Type": "application/json",
            "Accept-Encoding": "gzip, deflate",
            "User-Agent": f"logproof/{VERSION}",
            **endpoint.secret_headers(),
        },
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=_READ_BUFFER,
    )


class _Connector(aiohttp.TCPConnector):
    """Tells each attempt whether its connection was made for it; a trace would say so too, at a tenth of a call."""

    def __init__(self, *, limit: int, keepalive_timeout: float, ssl: ssl.SSLContext | bool) -> None:
        super().__init__(limit=limit, keepalive_timeout=keepalive_timeout, ssl=ssl)
        self._known: WeakSet[asyncio.BaseTransport] = WeakSet()

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        link = _LINK.get()
        link.fresh = True
        connection = await super().connect(req, traces, timeout)
        if connection.transport is not None:
            link.fresh = connection.transport not in self._known
            self._known.add(connection.transport)
        return connection


def _tls(verify: bool | str) -> ssl.SSLContext | bool:
    if isinstance(verify, bool):
        return verify
    try:
        return ssl.create_default_context(cafile=verify)
    except OSError:
        raise UsageError(f"the CA file {verify} cannot be read", hint="name a file of PEM certificates") from None


def _after(error: EndpointError, sends: int) -> EndpointError:
    """The error that ends a request, with the number of times it was sent."""
    error.attempts = sends
    if sends > 1:
        error.message += f" (sent {sends} times)"
    return error
