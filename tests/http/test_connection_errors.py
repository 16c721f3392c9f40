"""Each way a connection fails: one line that says what to do, and whether a repetition may help."""

from __future__ import annotations

import ssl
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from logproof.http.connection_errors import explain, is_drop
from logproof.http.endpoint import endpoint
from logproof.http.retry import CONNECTION, FINAL

HERE = endpoint("https://h", env={})
PEER: Any = SimpleNamespace(host="h", port=443, ssl=True)


def _untrusted() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = "self-signed certificate"
    return error


@pytest.mark.parametrize(
    ("error", "message", "code"),
    [
        (aiohttp.ClientConnectorCertificateError(PEER, _untrusted()), "https://h: self-signed certificate", FINAL),
        (aiohttp.ClientConnectorSSLError(PEER, ssl.SSLError(1, "x")), "no secure connection to https://h", FINAL),
        (aiohttp.ClientConnectorError(PEER, ConnectionResetError()), "https://h: handshake failed", CONNECTION),
        (
            aiohttp.ClientConnectorError(PEER, OSError(113, "No route to host")),
            "no connection to https://h: No ro",
            CONNECTION,
        ),
        (aiohttp.ClientOSError(104, "reset"), "closed the connection without a reply", CONNECTION),
        (aiohttp.ClientConnectionError("odd"), "the request to https://h failed (ClientConnectionError)", CONNECTION),
    ],
)
def test_what_is_said(error: aiohttp.ClientError, message: str, code: str) -> None:
    problem, retry_code = explain(error, HERE)
    assert message in str(problem)
    assert retry_code == code


def test_only_an_open_connection_can_drop() -> None:
    assert is_drop(aiohttp.ServerDisconnectedError())
    assert not is_drop(aiohttp.ClientConnectorError(PEER, ConnectionRefusedError()))
    assert not is_drop(aiohttp.ClientPayloadError())
