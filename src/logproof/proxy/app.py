"""The ASGI application: captured routes, the proxy's own status, and everything else passed through untouched."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from logproof.proxy.captured_call import CapturedCall, CaptureLimits, Tally
from logproof.proxy.headers import Raw, beside, end_to_end, first
from logproof.proxy.incoming import ClientGone, Incoming, TooLarge
from logproof.proxy.recorder import Recorder
from logproof.proxy.request_plan import ROUTES, Asks
from logproof.proxy.upstream import Upstream, UpstreamFault, read
from logproof.version import VERSION

STATUS = "/logproof/proxy/status"
_WORDS = {
    "open": "fails open: a call that cannot be recorded is served and counted as lost",
    "closed": "fails closed: while calls cannot be recorded they are refused with 503",
}


class Proxy:
    """The parts of one running proxy. route_asks: captured route -> what is asked there."""

    def __init__(
        self,
        upstream: Upstream,
        recorder: Recorder,
        route_asks: Mapping[str, Asks],
        limits: CaptureLimits | None = None,
    ) -> None:
        self.upstream = upstream
        self.recorder = recorder
        self.route_asks = dict(route_asks)
        self.limits = limits or CaptureLimits()
        self.tally = Tally()
        self.passed = 0

    @property
    def words(self) -> str:
        """What happens to calls that cannot be recorded."""
        return _WORDS[self.recorder.on_full]

    def status(self) -> dict[str, object]:
        """What the status route answers."""
        return {
            "version": VERSION,
            "upstream": self.upstream.root,
            "on_full": self.recorder.on_full,
            "means": self.words,
            "asks": self.route_asks,
            "passed_through": self.passed,
            **msgspec.to_builtins(self.recorder.counts),
            **msgspec.to_builtins(self.tally),
            "waiting": self.recorder.waiting,
            "capacity": self.recorder.capacity,
            "full": self.recorder.full,
        }

    def application(self) -> Starlette:
        """The application, which opens the pool and starts the recorder, and on shutdown carries what is held."""
        routes = [Route(STATUS, self._status), Route("/{path:path}", self)]
        return Starlette(routes=routes, lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        await self.upstream.open()
        self.recorder.start()
        try:
            yield
        finally:
            await self.recorder.close()
            await self.upstream.close()

    async def _status(self, _: Request) -> Response:
        return Response(msgspec.json.encode(self.status()), media_type="application/json")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request of any path and method."""
        incoming = Incoming(receive)
        began = _Began(send)
        captured = scope["method"] == "POST" and scope["path"] in ROUTES
        serve = self._captured if captured else self._passed
        try:
            await serve(scope, incoming, began)
        except ClientGone:
            return
        except TooLarge:
            await began.refuse(413, f"the body is longer than {self.limits.request} bytes")
        except UpstreamFault as fault:
            await began.refuse(fault.status, fault.message)

    async def _captured(self, scope: Scope, incoming: Incoming, send: _Began) -> None:
        if not self.recorder.admit():
            await send.refuse(503, "this call cannot be recorded now, and the proxy fails closed")
            return
        call = CapturedCall(self.upstream, self.limits, self.tally, scope, send)
        try:
            body = await incoming.whole(self.limits.request)
            await incoming.serve(call.run(_target(scope), body, self.route_asks[scope["path"]]))
        finally:
            exchange = call.exchange()
            self.recorder.leave() if exchange is None else self.recorder.offer(exchange)

    async def _passed(self, scope: Scope, incoming: Incoming, send: _Began) -> None:
        self.passed += 1
        await incoming.serve(self._forward(scope, incoming, send))

    async def _forward(self, scope: Scope, incoming: Incoming, send: _Began) -> None:
        headers = scope["headers"]
        body = incoming.pieces() if _has_body(headers) else None
        if body is None:
            await incoming.whole(0)
        sent = end_to_end(headers, b"host", b"expect")
        async with self.upstream.send(scope["method"], _target(scope), sent, body) as reply:
            head = beside(end_to_end(reply.raw_headers), self.upstream.root)
            await send({"type": "http.response.start", "status": reply.status, "headers": head})
            async for piece in read(reply):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})


class _Began:
    """`send` that knows whether the reply has begun: after that, a fault can only cut it."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._begun = False

    async def __call__(self, message: Message) -> None:
        self._begun = True
        await self._send(message)

    async def refuse(self, status: int, message: str) -> None:
        """Answer with an error of the proxy's own, unless the reply has begun."""
        if self._begun:
            return
        error = {"message": f"logproof proxy: {message}", "type": "logproof_proxy", "code": status}
        body = msgspec.json.encode({"error": error})
        head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await self({"type": "http.response.start", "status": status, "headers": head})
        await self({"type": "http.response.body", "body": body, "more_body": False})


def _target(scope: Scope) -> str:
    """Path and query exactly as the client wrote them."""
    query = scope["query_string"].decode("latin-1")
    path: str = scope["raw_path"].decode("latin-1")
    return f"{path}?{query}" if query else path


def _has_body(headers: list[Raw]) -> bool:
    return bool(first(headers, b"transfer-encoding")) or first(headers, b"content-length") not in (b"", b"0")
