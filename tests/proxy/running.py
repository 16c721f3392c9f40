"""A proxy that runs in a thread, a sink that keeps what it gets, and a plain HTTP client."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from logproof.proxy.app import STATUS, Proxy
from logproof.proxy.captured_call import CaptureLimits
from logproof.proxy.captured_exchange import CapturedExchange
from logproof.proxy.recorder import OnFull, Recorder
from logproof.proxy.request_plan import ROUTES, Asks
from logproof.proxy.serve import listen, server
from logproof.proxy.upstream import Upstream, UpstreamTimeouts

KEY = "sk-do-not-keep-me"
ABLE = Asks(ids=True, named=True, width=3)


@dataclass
class Kept:
    """A sink. fault: raised by the next writes while set. gate: cleared, writes wait for it."""

    got: list[CapturedExchange] = field(default_factory=list)
    fault: Exception | None = None
    gate: threading.Event = field(default_factory=threading.Event)
    ticks: int = 0
    closed: bool = False

    def __post_init__(self) -> None:
        self.gate.set()

    def write(self, exchange: CapturedExchange) -> None:
        self.gate.wait(30)
        if self.fault is not None:
            raise self.fault
        self.got.append(exchange)

    def tick(self) -> None:
        self.ticks += 1
        if self.fault is not None:
            raise self.fault

    def close(self) -> None:
        self.closed = True
        if self.fault is not None:
            raise self.fault


@dataclass
class Answer:
    """A reply as a client saw it; header names in lower case, in order."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return dict(self.headers).get(name)


@dataclass
class Running:
    """A proxy that serves at `port`."""

    port: int
    proxy: Proxy
    sink: Kept

    def call(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Answer:
        return call(self.port, method, path, body, headers)

    def post(self, path: str, body: dict[str, object] | bytes, **headers: str) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"content-type": "application/json", "authorization": f"Bearer {KEY}", **headers}
        return self.call("POST", path, data, sent)

    def status(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.call("GET", STATUS).body)
        return found

    def records(self, count: int) -> list[CapturedExchange]:
        """The sink's exchanges once there are `count` of them."""
        wait_for(lambda: len(self.sink.got) >= count)
        return self.sink.got


def call(port: int, method: str, path: str, body: bytes | None, headers: dict[str, str] | None = None) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, body=body, headers=headers or {})
        reply = connection.getresponse()
        return Answer(reply.status, [(k.lower(), v) for k, v in reply.getheaders()], reply.read())
    finally:
        connection.close()


def wait_for(done: Callable[[], bool], seconds: float = 30.0) -> None:
    """Return as soon as `done()`; fails after a generous limit that no passing test reaches."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


@contextmanager
def running(
    upstream: str,
    *,
    on_full: OnFull = "open",
    capacity: int = 64,
    limits: CaptureLimits | None = None,
    timeouts: UpstreamTimeouts | None = None,
    able: Asks = ABLE,
) -> Iterator[Running]:
    """A proxy in front of `upstream`; on the way out it has drained."""
    sink = Kept()
    recorder = Recorder(sink, on_full, capacity=capacity, tick_s=0.02)
    made = Proxy(Upstream(upstream, timeouts), recorder, dict.fromkeys(ROUTES, able), limits)
    with listen("127.0.0.1:0") as at:
        service = server(made, drain_s=5)
        thread = threading.Thread(target=service.run, kwargs={"sockets": [at]}, daemon=True)
        thread.start()
        wait_for(lambda: service.started)
        try:
            yield Running(at.getsockname()[1], made, sink)
        finally:
            service.should_exit = True
            thread.join(30)
            assert not thread.is_alive()
