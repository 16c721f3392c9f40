"""The sink of the proxy: exchanges as artifacts, and on request as lines of a wire log."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime

import msgspec

from logproof.ir.facts import Facts
from logproof.proxy.captured_exchange import CapturedExchange
from logproof.proxy.rotating_lines import RotatingLines
from logproof.verify.artifact.artifact import Claim, encode_artifact
from logproof.verify.artifact.request_files import request_line
from logproof.verify.artifact.signing import signed
from logproof.verify.record.defaults import Defaults
from logproof.verify.record.observed import ObservedExchange, artifacts_of

ClaimFor = Callable[[str], Claim]
"""Claim of the model that a request names."""


class FileSink:
    """Writes the artifacts of exchanges, and on request the exchanges themselves, as JSON lines.

    lines: files of the artifacts; wires: of the exchanges, or None; requests: of what was requested, or None.
    defaults: what the engine takes where a request says nothing. sign_key: signs each artifact and request.
    """

    def __init__(
        self,
        lines: RotatingLines,
        wires: RotatingLines | None,
        facts: Facts,
        claims: ClaimFor,
        endpoint: str,
        defaults: Defaults | None = None,
        sign_key: bytes | None = None,
        requests: RotatingLines | None = None,
    ) -> None:
        self._lines = lines
        self._requests = requests
        self._wires = wires
        self._facts = facts
        self._claims = claims
        self._endpoint = endpoint
        self._defaults = defaults
        self._sign_key = sign_key
        self._lock = threading.Lock()

    def write(self, exchange: CapturedExchange) -> None:
        """The wire log first: it also holds what becomes no artifact. Raises as `artifacts_of`, and StoreError."""
        with self._lock:
            if self._wires is not None:
                self._wires.write(wire_line(exchange))
            if exchange.status == 200:
                self._artifacts(exchange)

    def _artifacts(self, exchange: CapturedExchange) -> None:
        claim = self._claims(_model_of(exchange))
        for artifact in artifacts_of(observed(exchange), self._facts, claim, self._endpoint, self._defaults):
            self._lines.write(encode_artifact(signed(artifact, self._sign_key)))
        if self._requests is not None:
            body = msgspec.json.decode(exchange.forwarded)
            self._requests.write(request_line(exchange.path, body, self._sign_key))

    def tick(self) -> None:
        """Close files that are old enough. Raises StoreError."""
        with self._lock:
            for files in self._open_files():
                files.tick()

    def close(self) -> None:
        """Make the files durable. Raises StoreError."""
        with self._lock:
            for files in self._open_files():
                files.close()

    def _open_files(self) -> list[RotatingLines]:
        return [files for files in (self._lines, self._wires, self._requests) if files is not None]


def observed(exchange: CapturedExchange) -> ObservedExchange:
    """An exchange as the verify room takes it."""
    return ObservedExchange(
        path=exchange.path,
        body=exchange.forwarded,
        reply=exchange.reply,
        streamed=exchange.streamed,
        width=exchange.width,
        when=datetime.fromisoformat(exchange.started_at),
        request_sha256=exchange.forwarded_sha256,
        reply_sha256=exchange.reply_sha256,
    )


def _model_of(exchange: CapturedExchange) -> str:
    try:
        return msgspec.json.decode(exchange.forwarded, type=_NamedModel).model
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "unknown"


class _NamedModel(msgspec.Struct):
    model: str = "unknown"


def wire_line(exchange: CapturedExchange) -> bytes:
    """An exchange as one line of a wire recording: bodies as JSON where they are JSON, as text otherwise."""
    record: dict[str, object] = {
        "method": "POST",
        "path": exchange.path,
        "started_at": exchange.started_at,
        "request": _json_or_text(exchange.forwarded),
        "sent": None if exchange.sent == exchange.forwarded else _json_or_text(exchange.sent),
        "status": exchange.status,
        "headers": {"content-type": exchange.content_type},
        "complete": exchange.complete,
        "asked": exchange.added,
        "seconds": exchange.seconds,
        "request_sha256": exchange.forwarded_sha256,
        "response_sha256": exchange.reply_sha256,
        "served_sha256": exchange.served_sha256,
    }
    decoded = None if exchange.streamed else _json(exchange.reply)
    if decoded is None:
        record["response_text"] = exchange.reply.decode(errors="replace")
    else:
        record["response"] = decoded
    return msgspec.json.encode(record)


def _json(data: bytes) -> object:
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _json_or_text(data: bytes) -> object:
    decoded = _json(data)
    return data.decode(errors="replace") if decoded is None else decoded
