"""The engine's side: one pool of connections, bytes as they are, and one kind of error for all that goes wrong.

Nothing is decoded, followed, retried or added: compression, redirects, cookies and errors of the engine belong to the
client.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import msgspec
from multidict import CIMultiDict
from yarl import URL

from logproof.proxy.headers import Raw

_KEEP_IDLE_S = 4.0
"""Idle connections are dropped before uvicorn (vLLM, SGLang) drops them, which it does after 5 s."""


class UpstreamFault(Exception):
    """The engine gave no usable reply. status: what the client is answered; message: one line without secrets."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class UpstreamTimeouts(msgspec.Struct, frozen=True):
    """Seconds. connect: to open a connection. idle: without a byte, also before the first; None waits for ever."""

    connect: float = 10.0
    idle: float | None = 1800.0


class Upstream:
    """HTTP to one root URL; `open` and `close` around use. limit: most connections, 0 for no limit."""

    def __init__(self, root: str, timeouts: UpstreamTimeouts | None = None, *, limit: int = 0) -> None:
        self.root = root.rstrip("/")
        self._timeouts = timeouts or UpstreamTimeouts()
        self._limit = limit
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Make the pool; needs a running event loop."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._limit, keepalive_timeout=_KEEP_IDLE_S),
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=self._timeouts.connect, sock_read=self._timeouts.idle
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            read_bufsize=2**18,
        )

    async def close(self) -> None:
        """Close the pool."""
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def send(
        self, method: str, target: str, headers: list[Raw], body: bytes | AsyncIterator[bytes] | None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The engine's reply, its body still to be read with `read`. Raises UpstreamFault."""
        if self._session is None:
            raise RuntimeError("open() comes first")
        sent = CIMultiDict((k.decode("latin-1"), v.decode("latin-1")) for k, v in headers)
        url = URL(self.root + target, encoded=True)
        try:
            request = self._session.request(method, url, headers=sent, data=body, allow_redirects=False)
            reply = await request
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise fault(error) from None
        try:
            yield reply
        finally:
            # A reply that was not read to its end leaves its connection closed, which stops the engine's work.
            reply.release() if reply.content.at_eof() else reply.close()


async def read(reply: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The body as it comes. Raises UpstreamFault where it is cut."""
    try:
        async for piece in reply.content.iter_any():
            yield piece
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise fault(error) from None


def fault(error: Exception) -> UpstreamFault:
    """What a client is told of a failed way to the engine; the error's own text may hold the URL and stays out."""
    if isinstance(error, aiohttp.ServerTimeoutError | TimeoutError):
        return UpstreamFault(504, "the engine did not answer in time")
    if isinstance(error, aiohttp.ClientConnectorError):
        return UpstreamFault(502, "the engine cannot be reached")
    return UpstreamFault(502, f"the engine's reply broke off ({type(error).__name__})")
