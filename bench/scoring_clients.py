"""The clients that bench/scoring.py compares, but for lm-evaluation-harness: one worker process each.

    python bench/scoring_clients.py CLIENT PORT < rounds > figures

CLIENT: floor (raw sockets, msgspec), aiohttp (bare aiohttp, msgspec) or logproof. Each input line is a JSON list
[kind, requests, concurrency]; each output line the CPU and wall seconds of that round, {"cpu": s, "wall": s}.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import msgspec

from logproof.client.client import Client
from logproof.dialects.common.completions import CompletionsBody
from logproof.dialects.lower import lower
from logproof.dialects.registry import get_dialect
from logproof.eval.run.runner import GC_THRESHOLD
from logproof.http.endpoint import endpoint
from logproof.http.transport import Transport
from logproof.ir.facts import Facts
from logproof.ir.request import Input, Request, Sampling, Scoring

REPLIES = Path(__file__).with_name("replies")
DECODER = msgspec.json.Decoder(CompletionsBody)
"""Typed decoding with the very fields that logproof reads: the floor of everything that is behind the socket."""

FACTS = Facts(fields={"/v1/completions": ("logprob_token_ids",)}, max_logprobs=100, vocab_size=49_152)
DIALECT = get_dialect("vllm_native")
Send = Callable[[], Awaitable[object]]


def requests() -> dict[str, tuple[str, Request]]:
    """kind -> (recorded reply, the request that it answers)."""
    import replay_server

    text = (REPLIES / "score.txt").read_text()
    ids = DECODER.decode(replay_server.reply("score")).choices[0].prompt_token_ids or []
    one = Sampling(max_tokens=1, temperature=0.0)
    story = "Once upon a time there was a small harbour town, and"
    return {
        "score": ("score", Request("smollm2", Input(text=text), one, Scoring(prompt=0))),
        "ids": ("score", Request("smollm2", Input(token_ids=tuple(ids)), one, Scoring(prompt=0))),
        "wide": ("wide", Request("smollm2", Input(text=text), one, Scoring(prompt=20))),
        "labels": (
            "labels",
            Request(
                "smollm2",
                Input(text=(REPLIES / "labels.txt").read_text()),
                one,
                Scoring(label_ids=(330, 389, 340, 422)),
            ),
        ),
        "generate": (
            "story",
            Request("smollm2", Input(text=story), Sampling(max_tokens=256, temperature=0.0), Scoring(sampled=5)),
        ),
    }


async def together(send: Send, count: int, concurrency: int) -> None:
    """`count` calls, so many at a time, by that many workers."""
    left = iter(range(count))

    async def work() -> None:
        for _ in left:
            await send()

    await asyncio.gather(*(work() for _ in range(concurrency)))


class Raw(asyncio.Protocol):
    """One raw connection with one request in flight: the least that a client in Python can do."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._got: list[bytes] = []
        self._missing = -1

    def post(self, message: bytes) -> asyncio.Future[bytes]:
        self._done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.transport.write(message)
        return self._done

    def data_received(self, data: bytes) -> None:
        if self._missing < 0:
            head, _, data = data.partition(b"\r\n\r\n")
            self._missing = int(head.rpartition(b"content-length: ")[2])
        self._got.append(data)
        self._missing -= len(data)
        if self._missing == 0:
            self._missing = -1
            body = b"".join(self._got)
            self._got.clear()
            self._done.set_result(body)


async def floor(port: int, name: str, body: bytes, count: int, concurrency: int) -> None:
    head = f"POST /{name}/v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    message = head.encode() + body
    loop = asyncio.get_running_loop()
    idle = [(await loop.create_connection(Raw, "127.0.0.1", port))[1] for _ in range(concurrency)]

    async def send() -> None:
        link = idle.pop()
        DECODER.decode(await link.post(message))
        idle.append(link)

    await together(send, count, concurrency)
    for link in idle:
        link.transport.close()


async def bare_aiohttp(port: int, name: str, body: bytes, count: int, concurrency: int) -> None:
    url = f"http://127.0.0.1:{port}/{name}/v1/completions"
    headers = {"content-type": "application/json"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def send() -> None:
            async with session.post(url, data=body, headers=headers) as response:
                DECODER.decode(await response.read())

        await together(send, count, concurrency)


async def logproof(port: int, name: str, request: Request, count: int, concurrency: int) -> None:
    async with Transport(endpoint(f"http://127.0.0.1:{port}/{name}"), limit=None) as transport:
        client = Client(transport, DIALECT, FACTS)
        await together(lambda: client.call(request), count, concurrency)


def run(client: str, port: int, kind: str, count: int, concurrency: int) -> None:
    name, request = requests()[kind]
    if client == "logproof":
        asyncio.run(logproof(port, name, request, count, concurrency))
        return
    body = lower(request, DIALECT, FACTS).wire.body
    asyncio.run((floor if client == "floor" else bare_aiohttp)(port, name, body, count, concurrency))


def main(client: str, port: str) -> None:
    gc.set_threshold(GC_THRESHOLD)
    for line in sys.stdin:
        kind, count, concurrency = json.loads(line)
        wall, cpu = time.perf_counter(), time.process_time()
        run(client, int(port), kind, count, concurrency)
        print(json.dumps({"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
