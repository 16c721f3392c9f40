"""Counters of a run in Prometheus' text form, on 127.0.0.1 while the run goes on: GET /metrics.

Format: lines of `# TYPE name kind` and `name{label="value"} number` (exposition format 0.0.4).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from logproof.errors import UsageError
from logproof.eval.run.counters import Counters

HOST = "127.0.0.1"
MAX_HEAD = 65_536
PATIENCE_S = 5.0
"""Seconds that a reader may take to ask."""

TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(counters: Counters, limit: int) -> str:
    """The text. limit: samples at a time, now."""
    c = counters
    lines = []
    for name, kind, values in (
        ("requests_total", "counter", {'{status="ok"}': c.requests - c.failed, '{status="failed"}': c.failed}),
        ("retries_total", "counter", {"": c.retries}),
        ("tokens_total", "counter", {'{direction="in"}': c.prompt_tokens, '{direction="out"}': c.completion_tokens}),
        ("samples_total", "counter", {'{status="ok"}': c.samples - c.lost, '{status="failed"}': c.lost}),
        ("queue_seconds_total", "counter", {"": c.queued}),
        ("requests_in_flight", "gauge", {"": c.in_flight}),
        ("concurrency", "gauge", {"": limit}),
        ("reply_seconds", "summary", _replies(c)),
    ):
        lines.append(f"# TYPE logproof_{name} {kind}")
        lines += [f"logproof_{name}{label} {value}" for label, value in values.items()]
    return "\n".join(lines) + "\n"


def _replies(counters: Counters) -> dict[str, float]:
    shares = {f'{{quantile="{share}"}}': counters.percentile(share) for share in (0.5, 0.95, 0.99)}
    known = {label: value for label, value in shares.items() if value is not None}
    return {**known, "_sum": counters.replying, "_count": float(sum(counters.seconds))}


@asynccontextmanager
async def metrics_port(port: int, text: Callable[[], str]) -> AsyncIterator[int]:
    """Serve `text()` while the context is open; gives the port (0 asks for a free one). Raises UsageError."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
            found = head.startswith((b"GET /metrics ", b"GET /metrics?"))
            body = (text() if found else "see /metrics\n").encode()
            status = "200 OK" if found else "404 Not Found"
            writer.write(
                f"HTTP/1.1 {status}\r\ncontent-type: {TYPE}\r\ncontent-length: {len(body)}\r\n"
                "connection: close\r\n\r\n".encode()
                + body
            )
            await writer.drain()
        writer.close()

    try:
        server = await asyncio.start_server(answer, HOST, port, limit=MAX_HEAD)
    except (OSError, OverflowError) as error:
        raise UsageError(f"port {port} cannot be listened on: {error}", hint="name another with --metrics") from None
    async with server:
        yield server.sockets[0].getsockname()[1]
