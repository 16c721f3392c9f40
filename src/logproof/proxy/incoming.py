"""The client's side of one call: its body, read whole or passed on, and word of its leaving."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine

from starlette.types import Receive


class TooLarge(Exception):
    """The body is longer than the limit."""


class ClientGone(Exception):
    """The client closed the connection before its body ended."""


class Incoming:
    """Reads an ASGI request. After the last piece of the body, `gone` tells when the client leaves."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._read = asyncio.Event()

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body, piece by piece. Raises ClientGone."""
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            more = message.get("more_body", False)
            if not more:
                self._read.set()
            if message.get("body"):
                yield message["body"]

    async def whole(self, limit: int) -> bytes:
        """The whole body. Raises TooLarge beyond `limit` bytes, ClientGone."""
        parts, size = [], 0
        async for piece in self.pieces():
            size += len(piece)
            if size > limit:
                raise TooLarge
            parts.append(piece)
        return b"".join(parts)

    async def gone(self) -> None:
        """Returns when the client has closed the connection."""
        await self._read.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def serve(self, work: Coroutine[None, None, None]) -> None:
        """Run `work`, cancelled when the client leaves: then nobody wants what the engine would still compute."""
        task, watch = asyncio.create_task(work), asyncio.create_task(self.gone())
        try:
            await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            task.cancel() if not task.done() else None
            watch.cancel()
            await asyncio.gather(task, watch, return_exceptions=True)
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
