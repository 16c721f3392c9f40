"""aiohttp's exceptions -> one line of logproof.errors that says what to do, and a code for retry."""

from __future__ import annotations

import socket

import aiohttp

from logproof.errors import EndpointError, TransportError
from logproof.http.endpoint import Endpoint
from logproof.http.retry import CONNECTION, FINAL

_DROPPED = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)


def is_drop(error: aiohttp.ClientError) -> bool:
    """The peer closed an open connection before any byte of a reply (an idle one, if it was reused)."""
    return isinstance(error, _DROPPED) and not isinstance(error, aiohttp.ClientConnectorError)


def explain(error: aiohttp.ClientError, endpoint: Endpoint) -> tuple[EndpointError, str]:
    """The error to raise for a failed attempt, and its code for `retry.decide`."""
    where = endpoint.display
    if isinstance(error, (aiohttp.ClientConnectorCertificateError, aiohttp.ClientSSLError)):
        return _tls(error, where), FINAL
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return _unknown_host(error, where)
    if isinstance(error, aiohttp.ClientConnectorError) and _in_handshake(error, where):
        return _tls(error, where), CONNECTION
    if isinstance(error, aiohttp.ClientConnectorError):
        return _refused(error, where), CONNECTION
    if isinstance(error, aiohttp.ClientPayloadError):
        return TransportError(f"the reply of {where} was cut: its body ended before its stated length"), CONNECTION
    if isinstance(error, aiohttp.ClientResponseError):
        text = f"{where} does not answer in HTTP that can be read"
        return TransportError(text, hint="is this the port of an HTTP server (and not https)?"), CONNECTION
    if is_drop(error):
        hint = "a request can end a server: see its log, or ask GET /health"
        return TransportError(f"{where} closed the connection without a reply", hint=hint), CONNECTION
    return TransportError(f"the request to {where} failed ({type(error).__name__})"), CONNECTION


def _tls(error: aiohttp.ClientError, where: str) -> TransportError:
    cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", None)
    reason = getattr(cause, "verify_message", None) or getattr(cause, "reason", None) or "handshake failed"
    return TransportError(
        f"no secure connection to {where}: {reason}",
        hint="name the CA file that signed its certificate, or use http:// if the server speaks plain HTTP",
    )


def _in_handshake(error: aiohttp.ClientConnectorError, where: str) -> bool:
    """The peer took the connection and dropped it before TLS stood."""
    return where.startswith("https://") and isinstance(error.os_error, ConnectionResetError)


def _unknown_host(error: aiohttp.ClientConnectorDNSError, where: str) -> tuple[TransportError, str]:
    passing = isinstance(error.os_error, socket.gaierror) and error.os_error.errno == socket.EAI_AGAIN
    text = f"the host of {where} is unknown (no address found for {error.host})"
    return TransportError(text, hint="check the base URL's spelling"), CONNECTION if passing else FINAL


def _refused(error: aiohttp.ClientConnectorError, where: str) -> TransportError:
    if isinstance(error.os_error, ConnectionRefusedError):
        return TransportError(
            f"nothing listens at {where} (connection refused)",
            hint="start the engine, or correct host and port of the base URL",
        )
    reason = error.os_error.strerror or type(error.os_error).__name__
    return TransportError(f"no connection to {where}: {reason}")
