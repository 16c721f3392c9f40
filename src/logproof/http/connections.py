"""Kept-alive connections to one endpoint: aiohttp's pool, TLS and HTTP parser, without its ClientSession.

What a session adds to each request (URL and option handling, cookies, redirects, a task that writes the body) costs
more than the exchange itself, and none of it is wanted here. What lies below the session is less public: pyproject.toml
names the minor versions that were tried, and tests/http/test_aiohttp_surface.py each name that is used.
"""

from __future__ import annotations

import asyncio
import ssl
from weakref import WeakSet

import aiohttp
from aiohttp.connector import Connection
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from logproof.errors import UsageError
from logproof.http.endpoint import Endpoint
from logproof.http.exchange import WireRequest
from logproof.http.retry import Headers
from logproof.version import VERSION

_KEEP_IDLE_S = 4.0
"""Idle connections are dropped before uvicorn (vLLM, SGLang) drops them, which it does after 5 s."""

_READ_BUFFER = 2**18


class ConnectionPool:
    """The connections of one endpoint; made inside a running event loop, to be closed there.

    Their number is limited by the requests that are admitted alone. gzip and deflate are accepted, whatever optional
    decoders are installed. Raises UsageError for a CA file that cannot be read.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        tls = _tls(endpoint.verify)
        self.connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_IDLE_S, ssl=tls)
        self.timeout = aiohttp.ClientTimeout(total=None, connect=endpoint.timeouts.connect)
        self.place = aiohttp.ClientRequest("GET", URL(endpoint.root), headers=_headers(endpoint), ssl=tls)
        self.known: WeakSet[asyncio.BaseTransport] = WeakSet()
        self._root = self.place.url.raw_path.rstrip("/")
        self._heads: dict[Headers, str] = {}

    async def close(self) -> None:
        """Close every connection."""
        await self.connector.close()

    def head(self, request: WireRequest) -> bytes:
        """The head of a request, up to its blank line; its own headers replace the endpoint's."""
        fields = self._heads.get(request.headers)
        if fields is None:
            replaced = {name.lower() for name, _ in request.headers}
            own = [pair for pair in self.place.headers.items() if pair[0].lower() not in replaced]
            fields = "".join(f"{name}: {value}\r\n" for name, value in (*own, *request.headers))
            self._heads[request.headers] = fields
        length = f"Content-Length: {len(request.body)}\r\n" if request.body or request.method != "GET" else ""
        return f"{request.method} {self._root}{request.path} HTTP/1.1\r\n{fields}{length}\r\n".encode()


class PooledConnection:
    """The connection of one attempt. fresh: whether it was opened, or being opened, for this attempt.

    Errors are aiohttp's ClientError kinds; ConnectionTimeoutError where no connection stood in time.
    """

    def __init__(self, pool: ConnectionPool) -> None:
        self.fresh = True
        self._pool = pool
        self._connection: Connection | None = None
        self._content: aiohttp.StreamReader | None = None

    async def ask(self, request: WireRequest) -> tuple[int, Headers, aiohttp.StreamReader]:
        """Send a request; (status, headers with names in lower case, body) of its reply, once its head is here."""
        connection = self._connection = await self._connect()
        protocol, transport = connection.protocol, connection.transport
        if protocol is None or transport is None:
            raise aiohttp.ServerDisconnectedError
        protocol.set_response_params(read_until_eof=True, read_bufsize=_READ_BUFFER)
        transport.write(self._pool.head(request) + request.body)
        try:
            message, self._content = await protocol.read()
            while 100 <= message.code < 200:
                message, self._content = await protocol.read()
        except HttpProcessingError as error:
            raise aiohttp.ClientResponseError(self._pool.place.request_info, ()) from error
        return message.code, tuple((name.lower(), value) for name, value in message.headers.items()), self._content

    def free(self) -> None:
        """Give the connection back for the next request, or close it where something is under way on it."""
        if self._connection is None:
            return
        transport = self._connection.transport
        whole = self._content is not None and self._content.at_eof()
        if whole and transport is not None and not transport.get_write_buffer_size():
            self._connection.release()
        else:
            self._connection.close()

    async def _connect(self) -> Connection:
        pool = self._pool
        try:
            connection = await pool.connector.connect(pool.place, [], pool.timeout)
        except TimeoutError:
            raise aiohttp.ConnectionTimeoutError from None
        if connection.transport is not None:
            self.fresh = connection.transport not in pool.known
            pool.known.add(connection.transport)
        return connection


def _headers(endpoint: Endpoint) -> dict[str, str]:
    return {
        "Content-Type": "application/json",
        "Accept-Encoding": "gzip, deflate",
        "User-Agent": f"logproof/{VERSION}",
        **endpoint.secret_headers(),
    }


def _tls(verify: bool | str) -> ssl.SSLContext | bool:
    if isinstance(verify, bool):
        return verify
    try:
        return ssl.create_default_context(cafile=verify)
    except OSError:
        raise UsageError(f"the CA file {verify} cannot be read", hint="name a file of PEM certificates") from None
