"""The HTTP middleware: the body of a POST request goes through :mod:`body`, and the reply gains the report.

A body that names none of the fields, and its reply, pass through untouched.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from logproof_vllm.hooks import MARK, marked
from logproof_vllm.refusal import Refused
from logproof_vllm.runtime import STATUS
from logproof_vllm.server import report
from logproof_vllm.server.bad_request import error_body
from logproof_vllm.server.body import check_form, mentions, prepare

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

SEEN = "logproof_vllm"


def install() -> None:
    """Put the middleware into every FastAPI app made from now on, innermost.

    The endpoint plugin adds it too, but vLLM loads that one only when VLLM_PLUGINS names it; without the middleware
    some routes would drop the fields and answer 200.
    """
    import fastapi

    app: Any = fastapi.FastAPI
    if not marked(app.__init__):
        app.__init__ = wrap_app(app.__init__)


def wrap_app(original: Callable[..., None]) -> Callable[..., None]:
    """``FastAPI.__init__``: add the middleware behind those that the server adds later (its authentication too)."""

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, *args, **kwargs)
        self.add_middleware(Middleware)

    setattr(__init__, MARK, True)
    return __init__


class Middleware:
    """ASGI middleware; a second copy around the same app does nothing."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = _kind(scope)
        if kind is None or scope.get(SEEN):
            await self.app(scope, receive, send)
            return
        scope[SEEN] = True
        body = await read_body(receive)
        if body is None:
            return
        current = report.Report()
        try:
            used = _used(kind, _path(scope), body)
            body = prepare(_path(scope), body, current) if used else body
        except Refused as refused:
            await _send_error(send, error_body(refused))
            return
        if not used:
            await self.app(scope, _body_again(body, receive), send)
            return
        await self._serve(scope, body, current, receive, send)

    async def _serve(self, scope: Scope, body: bytes, current: report.Report, receive: Receive, send: Send) -> None:
        _set_length(scope["headers"], len(body), scope)
        token = report.CURRENT.set(current)
        try:
            await self.app(scope, _body_again(body, receive), Replier(send, current))
        finally:
            report.CURRENT.reset(token)


def _used(kind: str, path: str, body: bytes) -> bool:
    """Whether the body may hold one of the fields; a form that does is refused."""
    if kind == "form":
        check_form(path, body)
        return False
    return mentions(body)


class Replier:
    """``send`` that adds the report to a successful reply."""

    def __init__(self, send: Send, current: report.Report) -> None:
        self.send = send
        self.current = current
        self.start: Message | None = None
        self.parts: list[bytes] = []
        self.streaming = False
        self.tail = b""
        self.last = b"{}"
        self.failed = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif message["type"] != "http.response.body" or (self.start is None and not self.streaming):
            await self.send(message)
        elif self.streaming:
            await self._stream(message)
        else:
            await self._collect(message)

    async def _begin(self, message: Message) -> None:
        kind = _header(message.get("headers", ()), b"content-type")
        if self.current.plan is None or message["status"] != 200:
            await self.send(message)
        elif kind.startswith(b"application/json"):
            self.start = message
        else:
            self.streaming = kind.startswith(b"text/event-stream")
            await self.send(message)

    async def _collect(self, message: Message) -> None:
        self.parts.append(message.get("body", b""))
        if message.get("more_body", False) or self.start is None:
            return
        reply = report.into_json(b"".join(self.parts), await self._value())
        headers = [(k, v) for k, v in self.start["headers"] if k.lower() != b"content-length"]
        await self.send({**self.start, "headers": [*headers, (b"content-length", str(len(reply)).encode())]})
        await self.send({"type": "http.response.body", "body": reply, "more_body": False})

    async def _stream(self, message: Message) -> None:
        """Insert the report before ``[DONE]``, unless the stream told an error: then nothing is known of the replay.

        A chunk may end inside a line, so the last line waits.
        """
        text = self.tail + message.get("body", b"")
        more = message.get("more_body", False)
        cut = text.rfind(b"\n") + 1 if more else len(text)
        whole, self.tail = text[:cut], text[cut:]
        for line in whole.split(b"\n"):
            if line.startswith(b"data: {"):
                self.last = line[6:]
                self.failed |= line.startswith(b'data: {"error"')
        place = _done_at(whole)
        if place is not None and not self.failed:
            whole = whole[:place] + report.event(self.last, await self._value()) + whole[place:]
        await self.send({**message, "body": whole})

    async def _value(self) -> dict[str, object]:
        position = None
        if self.current.grammar and STATUS.engine is not None:
            position = await report.fetch_off_at(STATUS.engine, self.current.tag)
        return report.body(self.current, position)


def _done_at(text: bytes) -> int | None:
    if text.startswith(report.DONE):
        return 0
    place = text.find(b"\n" + report.DONE)
    return None if place < 0 else place + 1


async def read_body(receive: Receive) -> bytes | None:
    """The whole body; None when the client went away."""
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


def _body_again(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that gives `body` once, then whatever the client sends (its disconnect)."""
    sent = False

    async def again() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def _send_error(send: Send, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _path(scope: Scope) -> str:
    """The route's path: without the mount prefix and without a trailing slash."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    if root and path.startswith(root):
        path = path[len(root) :]
    return path.rstrip("/") or "/"


def _kind(scope: Scope) -> str | None:
    """``json`` or ``form``; None for what is not looked at.

    Routes that take JSON refuse another content type themselves; without one they may still read the body.
    """
    if scope["type"] != "http" or scope["method"] != "POST":
        return None
    kind = _header(scope["headers"], b"content-type").lower()
    if not kind or b"json" in kind:
        return "json"
    return "form" if b"form" in kind else None


def _header(headers: Any, name: bytes) -> bytes:
    return next((bytes(value) for key, value in headers if key.lower() == name), b"")


def _set_length(headers: Any, length: int, scope: Scope) -> None:
    others = [(key, value) for key, value in headers if key.lower() != b"content-length"]
    scope["headers"] = [*others, (b"content-length", str(length).encode())]
