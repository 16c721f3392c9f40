"""A real HTTP server whose every fault is programmed, for tests of any room.

    with FakeServer() as fake:
        fake.on("/v1/completions", {"choices": []})                          # 200, JSON, for every request
        fake.on("/v1/models", Reply(status=429, headers={"retry-after": "1"}), {"data": []})  # in turn; last repeats
        fake.on("/generate", lambda seen: {"text": seen.json()["text"]})     # computed from the request
        fake.on("/v1/chat/completions", Reply(events=[{"choices": []}, "[DONE]"]))            # a stream
        fake.recorded("tests/replies/vllm_native/score.json")                # the recorded route and reply
        transport = Transport(endpoint(fake.url))
        ...
        assert fake.seen[0].headers["authorization"] == "Bearer k" and fake.seen[0].json()["n"] == 1

Routes match the path with its query first, then without. An unknown route answers 404 as FastAPI
does. `fake.connections` counts the TCP connections that were opened. Faults are fields of `Reply`.
The server is an asyncio loop in a thread of its own, on a free port of 127.0.0.1.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from inspect import isawaitable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_TLS_HANDSHAKE = b"\x16"

Event = str | dict[str, Any] | tuple[str, str | dict[str, Any]]


@dataclass(frozen=True)
class Seen:
    """One request as it arrived; header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """One reply and its faults.

    json, body or events: what the body is (events: a data text, a JSON object, or a pair of name and
    either). headers: replace or add to the computed ones. delay: seconds before the head. piece: bytes
    per write (1 = slow bytes), pause: seconds between writes. chunked: chunked instead of a length.
    length: a false Content-Length. cut: close after this many body bytes, the length promised all the
    same. reset: RST after the request was read; with `cut`, after those bytes. drop: close without a
    reply. hang: never answer; with `cut`, hang after those bytes. close: close the connection after.
    raw: these bytes instead of any HTTP reply; keep: the connection stays open after them.
    """

    status: int = 200
    json: Any = None
    body: bytes | str | None = None
    events: Sequence[Event] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    piece: int | None = None
    pause: float = 0.0
    chunked: bool = False
    length: int | None = None
    cut: int | None = None
    reset: bool = False
    drop: bool = False
    hang: bool = False
    close: bool = False
    raw: bytes | None = None
    keep: bool = False

    def content(self) -> tuple[bytes, str]:
        """Body bytes and their content type."""
        if self.events is not None:
            return b"".join(map(sse, self.events)), "text/event-stream; charset=utf-8"
        if self.body is not None:
            return self.body.encode() if isinstance(self.body, str) else self.body, "text/plain; charset=utf-8"
        return json.dumps(self.json, ensure_ascii=False).encode(), "application/json"


Answer = Reply | dict[str, Any] | list[Any] | Callable[[Seen], Any]
"""A callable gives a Reply or a JSON value, or an awaitable of one."""


def sse(event: Event) -> bytes:
    """One event as bytes."""
    name, data = event if isinstance(event, tuple) else (None, event)
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {text}\n\n".encode()


def recording(file: str | Path) -> tuple[str, Reply]:
    """Route and reply of a recorded wire file, of either format (request with or without an envelope)."""
    held = json.loads(Path(file).read_text(encoding="utf-8"))
    request = held.get("request")
    path = held.get("path") or (request or {}).get("path")
    headers = held.get("headers") or held.get("response_headers") or {}
    body = held.get("response_text", held.get("response"))
    if not isinstance(path, str) or not isinstance(held.get("status"), int):
        raise ValueError(f"{file} holds no recorded exchange")
    if isinstance(body, str):
        kind = "text/event-stream" if body.startswith(("data:", "event:")) else "text/plain"
        return path, Reply(held["status"], body=body, headers={"content-type": kind, **headers})
    return path, Reply(held["status"], json=body, headers=headers)


class FakeServer:
    """The server; a context manager. Routes may be changed at any time. port: 0 takes a free one."""

    def __init__(self, port: int = 0) -> None:
        self.seen: list[Seen] = []
        self.connections = 0
        self._routes: dict[str, list[Answer]] = {}
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._socket = socket.create_server(("127.0.0.1", port))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()

    @property
    def url(self) -> str:
        """Base URL, without `/v1`."""
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def on(self, path: str, *answers: Answer) -> None:
        """Answer a route with these in turn; the last one stays."""
        if not answers:
            raise ValueError("a route needs an answer")
        self._routes[path] = list(answers)

    def recorded(self, *files: str | Path) -> None:
        """Serve recorded wire files, each on its route; several of one route in turn."""
        routes: dict[str, list[Answer]] = {}
        for file in files:
            path, reply = recording(file)
            routes.setdefault(path, []).append(reply)
        for path, answers in routes.items():
            self.on(path, *answers)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._connected, sock=self._socket, limit=2**26))
        self._loop.call_soon(self._ready.set)
        self._loop.run_forever()
        server.close()
        for task in self._tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # An accepted socket has protocol 0, on which asyncio does not turn Nagle's delay off.
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while await self._serve(reader, writer):
                    pass
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Read one request and answer it; False when the connection ends."""
        seen = await _read(reader)
        self.seen.append(seen)
        reply = await self._answer(seen)
        await asyncio.sleep(reply.delay)
        if reply.cut is None and (reply.hang or reply.drop or reply.reset):
            return await _fault(reply, writer)
        writer.write(reply.raw if reply.raw is not None else _head(reply))
        if reply.raw is None:
            await _write_body(reply, writer)
        await writer.drain()
        if reply.cut is not None:
            return await _fault(reply, writer)
        return (reply.raw is None or reply.keep) and not reply.close

    async def _answer(self, seen: Seen) -> Reply:
        if seen.method == "TLS":
            return Reply(400, body="plain HTTP is spoken here", close=True)
        answers = self._routes.get(seen.path) or self._routes.get(seen.path.partition("?")[0])
        if answers is None:
            return Reply(404, json={"detail": "Not Found"})
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if not isinstance(answer, (Reply, dict, list)):
            computed = answer(seen)
            answer = await computed if isawaitable(computed) else computed
        return answer if isinstance(answer, Reply) else Reply(json=answer)


async def _read(reader: asyncio.StreamReader) -> Seen:
    start = await reader.readexactly(1)
    if start == _TLS_HANDSHAKE:
        return Seen("TLS", "", {}, b"")
    head = (start + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    if headers.get("transfer-encoding") == "chunked":
        while size := int(await reader.readline(), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
    return Seen(method, path, headers, body)


def _head(reply: Reply) -> bytes:
    body, kind = reply.content()
    headers = {"content-type": kind}
    if reply.chunked or reply.events is not None:
        headers["transfer-encoding"] = "chunked"
    else:
        headers["content-length"] = str(len(body) if reply.length is None else reply.length)
    if reply.close:
        headers["connection"] = "close"
    headers |= {name.lower(): value for name, value in reply.headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    phrase = HTTPStatus(reply.status).phrase if reply.status in HTTPStatus._value2member_map_ else "Status"
    return f"HTTP/1.1 {reply.status} {phrase}\r\n{lines}\r\n".encode("latin-1")


async def _write_body(reply: Reply, writer: asyncio.StreamWriter) -> None:
    body = reply.content()[0][: reply.cut]
    chunked = reply.chunked or reply.events is not None
    step = reply.piece or max(len(body), 1)
    for start in range(0, len(body), step):
        piece = body[start : start + step]
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
        await writer.drain()
        await asyncio.sleep(reply.pause)
    if chunked and reply.cut is None:
        writer.write(b"0\r\n\r\n")


async def _fault(reply: Reply, writer: asyncio.StreamWriter) -> bool:
    """End the exchange as the reply says: hang for ever, reset, or close."""
    if reply.hang:
        await asyncio.Event().wait()
    if reply.reset:
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
    return False
