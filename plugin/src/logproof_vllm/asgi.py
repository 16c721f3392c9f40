"""The HTTP middleware: body ceiling, fields on paths that would ignore them, and the report in the reply.

Only POST requests with a JSON body are looked at, and only a body that names one of the fields is parsed. Any other
request and its reply pass through untouched.

| path | what happens to the fields |
|---|---|
| /v1/chat/completions, /v1/completions | left in the body; the request models read them |
| /inference/v1/generate | checked, then moved into ``sampling_params.extra_args`` |
| every other path | 400: it would drop them and answer as if nothing had been asked |
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from logproof_vllm import canonical, fields, frontend, grammar, report
from logproof_vllm.runtime import STATUS, Binding

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MODEL_PATHS = ("/v1/chat/completions", "/v1/completions")
GENERATE_PATH = "/inference/v1/generate"
SERVED_PATHS = (*MODEL_PATHS, GENERATE_PATH)
SEEN = "logproof_vllm"

_NAMES = tuple(f'"{name}"'.encode() for name in (*fields.FIELDS, canonical.KEY))
# An ASCII character spelled as an escape, or a body that is not UTF-8: names could hide from a search of bytes.
_HIDDEN = re.compile(rb"\\u00[2-7][0-9a-fA-F]|\x00")


class BodyError(Exception):
    """The body cannot be served; becomes a 400."""

    def __init__(self, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class Middleware:
    """ASGI middleware; a second copy around the same app does nothing."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope.get(SEEN) or not _is_json(scope):
            await self.app(scope, receive, send)
            return
        scope[SEEN] = True
        body = await read_body(receive)
        if body is None:
            return
        if not mentions(body):
            await self.app(scope, _replay(body, receive), send)
            return
        await self._serve(scope, body, receive, send)

    async def _serve(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        current = report.Report()
        try:
            body = prepare(_path(scope), body, current)
        except BodyError as error:
            await _send_error(send, str(error), error.parameter)
            return
        _set_length(scope["headers"], len(body), scope)
        token = report.CURRENT.set(current)
        try:
            await self.app(scope, _replay(body, receive), Replier(send, current))
        finally:
            report.CURRENT.reset(token)


def mentions(body: bytes) -> bool:
    """True when the body may hold one of the fields as a key."""
    return any(name in body for name in _NAMES) or _HIDDEN.search(body) is not None


def prepare(path: str, body: bytes, current: report.Report) -> bytes:
    """The body to hand on. Raises :class:`BodyError`."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        # The server says itself what is wrong with the JSON.
        return body
    if not isinstance(parsed, dict):
        return body
    given = [name for name in fields.FIELDS if parsed.get(name) is not None]
    arguments = _extra_args(parsed) if path == GENERATE_PATH else {}
    if canonical.KEY in arguments:
        raise BodyError(f"sampling_params.extra_args: {canonical.KEY} is not a field of requests", "extra_args")
    if not given and not any(name in arguments for name in fields.FIELDS):
        return body
    if len(body) > STATUS.limits.body_bytes:
        raise BodyError(f"the body has {len(body)} bytes; the ceiling with {given} is {STATUS.limits.body_bytes}")
    if path in MODEL_PATHS:
        current.max_tokens_given = any(parsed.get(name) is not None for name in ("max_tokens", "max_completion_tokens"))
        return body
    if path != GENERATE_PATH:
        raise BodyError(f"{given[0]}: {path} cannot enforce it; use {', '.join(SERVED_PATHS)}", given[0])
    return rewrite(parsed, current)


def rewrite(parsed: dict[str, Any], current: report.Report) -> bytes:
    """The body of /inference/v1/generate with the canonical entry inside its sampling parameters."""
    parameters = parsed.get("sampling_params")
    if not isinstance(parameters, dict):
        raise BodyError("sampling_params: must be an object", "sampling_params")
    binding = _binding()
    replay = _read(parsed, parameters, binding)
    for name in fields.FIELDS:
        parsed.pop(name, None)
    if replay is None:
        return json.dumps(parsed).encode()
    prompt = parsed.get("token_ids")
    _check_generate(parameters, replay, binding, len(prompt) if isinstance(prompt, list) else 0)
    tag = secrets.token_hex(8)
    entry: canonical.Entry = {"ids": list(replay.ids), "mode": replay.mode.mode, "tag": tag}
    extra = {key: value for key, value in (parameters.get("extra_args") or {}).items() if key not in fields.FIELDS}
    parameters["extra_args"] = {**extra, canonical.KEY: entry}
    current.fill(replay, binding.default_mode, tag, parameters.get("structured_outputs") is not None)
    return json.dumps(parsed).encode()


def _binding() -> Binding:
    reason = STATUS.refusal()
    if reason is not None or STATUS.binding is None:
        raise BodyError(reason or "logproof knows no engine yet; try again when the server is ready")
    return STATUS.binding


def _read(parsed: dict[str, Any], parameters: dict[str, Any], binding: Binding) -> fields.Replay | None:
    inner = {k: v for k, v in (parameters.get("extra_args") or {}).items() if k in fields.FIELDS and v is not None}
    outer = {k: v for k, v in parsed.items() if k in fields.FIELDS and v is not None}
    twice = sorted(set(inner) & set(outer))
    if twice:
        raise BodyError(f"{twice[0]}: sent twice; send it at the top level only", twice[0])
    try:
        return fields.parse({**outer, **inner}, binding.vocabulary, STATUS.limits)
    except fields.FieldError as error:
        raise BodyError(str(error), error.field) from error


def _check_generate(parameters: dict[str, Any], replay: fields.Replay, binding: Binding, prompt: int) -> None:
    """A stream answers 200 before the engine checks anything, so every refusal must come from here."""
    if replay.ids and parameters.get("max_tokens") is None:
        parameters["max_tokens"] = len(replay.ids)
    try:
        frontend.check_engine(replay, binding)
        frontend.check_params(_View(parameters), replay, binding)
        frontend.check_fits(prompt, len(replay.ids), binding)
    except Exception as error:
        raise BodyError(str(error.args[0]), getattr(error, "parameter", None)) from error


class _View:
    """Sampling parameters of a JSON body, read like the engine's own object."""

    def __init__(self, parameters: dict[str, Any]) -> None:
        self.n = parameters.get("n", 1)
        self.prompt_logprobs = parameters.get("prompt_logprobs")
        self.prompt_logprob_token_ids = parameters.get("prompt_logprob_token_ids")
        self.trace_decode_token_ids = parameters.get("trace_decode_token_ids")
        self.structured_outputs = parameters.get("structured_outputs")
        tokens = parameters.get("max_tokens")
        self.max_tokens = tokens if isinstance(tokens, int) else None


def _extra_args(parsed: dict[str, Any]) -> dict[str, Any]:
    parameters = parsed.get("sampling_params")
    extra = parameters.get("extra_args") if isinstance(parameters, dict) else None
    return extra if isinstance(extra, dict) else {}


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
        if self.current.replay is None or message["status"] != 200:
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
        """Insert the report before ``[DONE]``. A chunk may end inside a line, so the last line waits."""
        text = self.tail + message.get("body", b"")
        more = message.get("more_body", False)
        cut = text.rfind(b"\n") + 1 if more else len(text)
        whole, self.tail = text[:cut], text[cut:]
        for line in whole.split(b"\n"):
            if line.startswith(b"data: {"):
                self.last = line[6:]
        place = _done_at(whole)
        if place is not None:
            whole = whole[:place] + report.event(self.last, await self._value()) + whole[place:]
        await self.send({**message, "body": whole})

    async def _value(self) -> dict[str, object]:
        position = None
        if self.current.grammar and STATUS.engine is not None:
            position = await grammar.fetch_off_at(STATUS.engine, self.current.tag)
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


def _replay(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that gives `body` once, then whatever the client sends (its disconnect)."""
    sent = False

    async def again() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def _send_error(send: Send, message: str, parameter: str | None) -> None:
    """The server's own error form (``ErrorResponse``)."""
    error = {"message": message, "type": "BadRequestError", "param": parameter, "code": 400}
    body = json.dumps({"error": error}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _path(scope: Scope) -> str:
    """The route's path: without the mount prefix and without a trailing slash."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    if root and path.startswith(root):
        path = path[len(root) :]
    return path.rstrip("/") or "/"


def _is_json(scope: Scope) -> bool:
    """Routes that take JSON refuse another content type themselves; without one they may still read the body."""
    kind = _header(scope["headers"], b"content-type").lower()
    return not kind or b"json" in kind


def _header(headers: Any, name: bytes) -> bytes:
    return next((bytes(value) for key, value in headers if key.lower() == name), b"")


def _set_length(headers: Any, length: int, scope: Scope) -> None:
    kept = [(key, value) for key, value in headers if key.lower() != b"content-length"]
    scope["headers"] = [*kept, (b"content-length", str(length).encode())]
