"""Faults of the connection: what the transport repeats, forgives once, and names."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import pytest

from fakes.sending import ASK, ONCE, ROUTE, send, work
from fakes.server import FakeServer, Reply, Seen
from logproof.errors import (
    TransportError,
    UsageError,
)
from logproof.http.endpoint import endpoint
from logproof.http.exchange import WireRequest
from logproof.http.retry import RetryPolicy
from logproof.http.transport import Transport


def test_a_body_cut_before_its_length_is_no_reply(fake: FakeServer) -> None:
    fake.on(ROUTE, Reply(json={"text": "abcdef"}, cut=9), Reply(json={"text": "abcdef"}, cut=9, reset=True), {"ok": 1})
    reply = send(fake.url)
    assert (reply.body, reply.attempts) == (b'{"ok": 1}', 3)


def test_a_chunked_body_cut_is_no_reply(fake: FakeServer) -> None:
    fake.on(ROUTE, Reply(json={"text": "abcdef"}, chunked=True, cut=9))
    with pytest.raises(
        TransportError, match=r"was cut: its body ended before its stated length \(sent 2 times\)"
    ) as caught:
        send(fake.url, policy=RetryPolicy(attempts=2))
    assert caught.value.attempts == 2


def test_a_body_longer_than_its_length_spoils_no_reply(fake: FakeServer) -> None:
    """The bytes beyond the length end the connection; they are part of no reply."""
    first: set[bytes] = set()

    def twice_the_body(seen: Seen) -> Reply:
        long = seen.body not in first
        first.add(seen.body)
        return Reply(body=seen.body * 2, length=len(seen.body)) if long else Reply(body=seen.body)

    fake.on(ROUTE, twice_the_body)

    async def each(transport: Transport) -> list[bytes]:
        return [(await transport.send(WireRequest(ROUTE, b"%d" % n))).body for n in range(9)]

    assert work(fake.url, each) == [b"%d" % n for n in range(9)]


@pytest.mark.parametrize("fault", [Reply(drop=True), Reply(reset=True)])
def test_a_connection_closed_without_a_reply_is_retried_with_a_wait(fake: FakeServer, fault: Reply) -> None:
    fake.on(ROUTE, fault, {})
    waits: list[float] = []
    assert send(fake.url, waits=waits).attempts == 2
    assert len(waits) == 1


def test_a_server_that_only_closes_connections_is_named(fake: FakeServer) -> None:
    fake.on(ROUTE, Reply(drop=True))
    with pytest.raises(TransportError, match="closed the connection without a reply"):
        send(fake.url, policy=ONCE)


@pytest.mark.parametrize("fault", [Reply(drop=True), Reply(reset=True)])
def test_a_reused_connection_closed_by_the_server_is_forgiven_once(fake: FakeServer, fault: Reply) -> None:
    fake.on(ROUTE, {}, fault, {})
    waits: list[float] = []

    async def twice(transport: Transport) -> int:
        await transport.send(ASK)
        return (await transport.send(ASK)).attempts

    assert work(fake.url, twice, policy=ONCE, waits=waits) == 2
    assert waits == []


def test_a_forgiven_loss_is_not_forgiven_again(fake: FakeServer) -> None:
    fake.on(ROUTE, {}, Reply(drop=True))

    async def twice(transport: Transport) -> None:
        await transport.send(ASK)
        await transport.send(ASK)

    with pytest.raises(TransportError) as caught:
        work(fake.url, twice, policy=ONCE)
    assert caught.value.attempts == 2


def test_nothing_listening() -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
    waits: list[float] = []
    with pytest.raises(TransportError, match=r"nothing listens at http://127\.0\.0\.1") as caught:
        send(url, policy=RetryPolicy(attempts=3), waits=waits)
    assert "start the engine" in (caught.value.hint or "")
    assert len(waits) == 2


def test_an_unknown_host_is_not_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    _resolve_to(monkeypatch, socket.gaierror(socket.EAI_NONAME, "Name or service not known"))
    with pytest.raises(TransportError, match=r"host of http://engine\.invalid is unknown") as caught:
        send("http://engine.invalid")
    assert caught.value.attempts == 1


def test_a_passing_failure_of_the_name_service_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    _resolve_to(monkeypatch, socket.gaierror(socket.EAI_AGAIN, "Temporary failure"))
    with pytest.raises(TransportError) as caught:
        send("http://engine.invalid", policy=RetryPolicy(attempts=2))
    assert caught.value.attempts == 2


def _resolve_to(monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", fail)


def test_a_network_without_a_way_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(asyncio.BaseEventLoop, "create_connection", fail)
    monkeypatch.setattr(asyncio.BaseEventLoop, "sock_connect", fail)
    monkeypatch.setattr("asyncio.selector_events.BaseSelectorEventLoop.sock_connect", fail)
    with pytest.raises(TransportError, match=r"no connection to http://127\.0\.0\.1:1: .*unreachable"):
        send("http://127.0.0.1:1", policy=ONCE)


def test_plain_http_where_tls_was_asked(fake: FakeServer) -> None:
    with pytest.raises(TransportError, match="no secure connection to https://") as caught:
        send(fake.url.replace("http://", "https://"))
    assert caught.value.attempts == 1
    assert "http://" in (caught.value.hint or "")


def test_no_http_at_all(fake: FakeServer) -> None:
    fake.on(ROUTE, Reply(raw=b"SSH-2.0-OpenSSH_9.6\r\n\r\n"))
    with pytest.raises(TransportError, match="does not answer in HTTP that can be read"):
        send(fake.url, policy=ONCE)


def test_a_missing_ca_file_is_a_usage_error(tmp_path: Path) -> None:
    target = endpoint("https://h", env={}, verify=str(tmp_path / "none.pem"))
    with pytest.raises(UsageError, match=r"none\.pem cannot be read"):
        send(target)


def test_a_ca_file_is_used() -> None:
    paths = ssl.get_default_verify_paths()
    if paths.cafile is None:
        target = endpoint("https://127.0.0.1:1", env={}, verify=False)
    else:
        target = endpoint("https://127.0.0.1:1", env={}, verify=paths.cafile)
    with pytest.raises(TransportError, match="nothing listens"):
        send(target, policy=ONCE)
