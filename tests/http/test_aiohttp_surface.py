"""What http/connections.py uses of aiohttp below its session: each test names what a later aiohttp lacks."""

from __future__ import annotations

import asyncio
import inspect
from importlib.metadata import version
from operator import attrgetter

import aiohttp
import aiohttp.client_proto
import aiohttp.connector
import aiohttp.http_exceptions
import aiohttp.http_parser
import pytest
from yarl import URL

TRIED = ("3.10", "3.11", "3.12", "3.13", "3.14")
"""Minor versions on which the tests of http, client and proxy passed; pyproject.toml allows no other."""

CALLS = {
    "TCPConnector": ("limit", "keepalive_timeout", "ssl"),
    "TCPConnector.connect": ("req", "traces", "timeout"),
    "TCPConnector.close": (),
    "ClientTimeout": ("total", "connect"),
    "ClientRequest": ("method", "url", "headers", "ssl"),
    "ClientResponseError": ("request_info", "history"),
    "client_proto.ResponseHandler.set_response_params": ("read_until_eof", "read_bufsize"),
    "client_proto.ResponseHandler.read": (),
    "connector.Connection.release": (),
    "connector.Connection.close": (),
    "StreamReader.readany": (),
    "StreamReader.at_eof": (),
}
"""What is called, with the parameters that it is called with."""

VALUES = (
    "connector.Connection.protocol",
    "connector.Connection.transport",
    "http_parser.RawResponseMessage.code",
    "http_parser.RawResponseMessage.headers",
)
"""What is read."""

ERRORS = {
    "http_exceptions.HttpProcessingError": Exception,
    "ServerDisconnectedError": aiohttp.ClientError,
    "ClientOSError": aiohttp.ClientError,
    "ClientConnectorError": aiohttp.ClientOSError,
    "ClientConnectorDNSError": aiohttp.ClientConnectorError,
    "ClientSSLError": aiohttp.ClientConnectorError,
    "ClientConnectorCertificateError": aiohttp.ClientError,
    "ClientPayloadError": aiohttp.ClientError,
    "ConnectionTimeoutError": TimeoutError,
}
"""What is raised, and what it must be a kind of."""


@pytest.mark.parametrize("name", CALLS)
def test_what_is_called_takes_what_it_is_given(name: str) -> None:
    parameters = inspect.signature(attrgetter(name)(aiohttp)).parameters
    assert [p for p in CALLS[name] if p not in parameters] == []


@pytest.mark.parametrize("name", VALUES)
def test_what_is_read_is_there(name: str) -> None:
    attrgetter(name)(aiohttp)


@pytest.mark.parametrize("name", ERRORS)
def test_what_is_raised_is_of_its_kind(name: str) -> None:
    assert issubclass(attrgetter(name)(aiohttp), ERRORS[name])


def test_a_request_made_without_a_session_has_what_a_head_is_written_from() -> None:
    async def run() -> tuple[str, str, object]:
        request = aiohttp.ClientRequest("GET", URL("http://127.0.0.1/base"), headers={"X-Side": "ours"}, ssl=True)
        return request.url.raw_path, request.headers["X-Side"], request.request_info

    path, side, info = asyncio.run(run())
    assert (path, side) == ("/base", "ours")
    assert isinstance(info, aiohttp.RequestInfo)


def test_the_installed_minor_is_one_that_was_tried() -> None:
    assert version("aiohttp").rpartition(".")[0] in TRIED
