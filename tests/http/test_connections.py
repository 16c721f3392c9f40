"""Connections: what one attempt sends over a connection, and when a connection may serve the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, TypeVar

import aiohttp
import pytest

from logproof.http.connections import ConnectionPool, PooledConnection
from logproof.http.endpoint import endpoint
from logproof.http.exchange import WireRequest

T = TypeVar("T")
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
ASK = WireRequest("/v1/x", b"{}")


def against(answer: bytes, job: Callable[[ConnectionPool], Awaitable[T]], *, reads: int = 65_536) -> T:
    """Run a job against a server that reads so many bytes of a connection at a time, and answers each time."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(reads):
            writer.write(answer)

    async def run() -> T:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=reads)
        port = server.sockets[0].getsockname()[1]
        pool = ConnectionPool(
            endpoint(f"http://127.0.0.1:{port}/base", key="k" * 8, headers={"X-Side": "ours"}, env={})
        )
        try:
            return await job(pool)
        finally:
            await pool.close()
            server.close()

    return asyncio.run(run())


async def exchange(pool: ConnectionPool, request: WireRequest = ASK) -> tuple[bool, bytes]:
    """(whether the connection was fresh, body)."""
    connection = PooledConnection(pool)
    try:
        _, _, content = await connection.ask(request)
        return connection.fresh, await content.read()
    finally:
        connection.free()


def test_a_whole_reply_leaves_its_connection_to_the_next() -> None:
    async def job(pool: ConnectionPool) -> list[tuple[bool, bytes]]:
        return [await exchange(pool) for _ in range(3)]

    assert against(OK, job) == [(True, b"{}"), (False, b"{}"), (False, b"{}")]


def test_hints_before_a_reply_are_passed_over() -> None:
    assert against(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + OK, exchange) == (True, b"{}")


def test_a_reply_not_read_to_its_end_costs_the_connection() -> None:
    async def job(pool: ConnectionPool) -> list[bool]:
        fresh = []
        for _ in range(2):
            connection = PooledConnection(pool)
            await connection.ask(ASK)
            connection.free()
            fresh.append(connection.fresh)
        return fresh

    assert against(OK[:-1], job) == [True, True]


def test_a_reply_to_a_request_that_is_not_sent_whole_costs_the_connection() -> None:
    async def job(pool: ConnectionPool) -> tuple[bool, bool]:
        first = await exchange(pool, WireRequest("/v1/x", b"x" * 2**25))
        return first[0], (await exchange(pool))[0]

    assert against(OK, job, reads=16) == (True, True)


def test_a_connection_lost_before_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def job(pool: ConnectionPool) -> None:
        async def connect(*_: object) -> Any:
            return SimpleNamespace(protocol=None, transport=None, close=lambda: None)

        monkeypatch.setattr(pool.connector, "connect", connect)
        await exchange(pool)

    with pytest.raises(aiohttp.ServerDisconnectedError):
        against(OK, job)


def test_the_head_of_a_request() -> None:
    async def heads(pool: ConnectionPool) -> list[bytes]:
        own = WireRequest("/v1/x?a=b", b"{}", (("accept", "text/plain"), ("version", "3")))
        return [pool.head(r) for r in (ASK, own, WireRequest("/health", method="GET"), WireRequest("/stop"))]

    post, own, get, empty = (head.decode().split("\r\n") for head in against(OK, heads))
    assert post[0] == "POST /base/v1/x HTTP/1.1"
    assert {"Accept: */*", "Content-Type: application/json", "X-Side: ours", f"Authorization: Bearer {'k' * 8}"} < set(
        post
    )
    assert post[-3:] == ["Content-Length: 2", "", ""]
    assert own[0] == "POST /base/v1/x?a=b HTTP/1.1"
    assert {"accept: text/plain", "version: 3"} < set(own)
    assert "Accept: */*" not in own
    assert not [line for line in get if line.startswith("Content-Length")]
    assert "Content-Length: 0" in empty
