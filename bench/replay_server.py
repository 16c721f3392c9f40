"""An instant server: answers each POST at once with a recorded reply; `/NAME/...` in the path names the reply.

    python bench/replay_server.py             (prints its port, serves until its standard input closes)

What is left of a request's time is then the client's. Replies are this project's own recordings of vLLM 0.32
with SmolLM2-135M, in bench/replies/.
"""

from __future__ import annotations

import asyncio
import gzip
import sys
from pathlib import Path

REPLIES = Path(__file__).with_name("replies")


def reply(name: str) -> bytes:
    """A recorded body."""
    packed = REPLIES / f"{name}.json.gz"
    return gzip.decompress(packed.read_bytes()) if packed.exists() else (REPLIES / f"{name}.json").read_bytes()


def answer(name: str) -> bytes:
    """The whole HTTP message of a recorded reply."""
    body = reply(name)
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Connection(asyncio.Protocol):
    """One kept-alive connection; requests come one after the other, each with a content-length."""

    answers: dict[bytes, bytes]

    def __init__(self) -> None:
        self._got = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._got += data
        end = self._got.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._got[:end]).lower()
        length = int(head.split(b"content-length:")[1].split(b"\r\n")[0]) if b"content-length:" in head else 0
        if len(self._got) >= end + 4 + length:
            del self._got[: end + 4 + length]
            self._transport.write(self.answers[head.split(b"/", 2)[1]])


async def serve() -> None:
    names = {path.name.split(".")[0] for path in REPLIES.glob("*.json*")}
    Connection.answers = {name.encode(): answer(name) for name in names}
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve())
