"""Limits that end an attempt, and statuses that the transport must not take for a reply."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from fakes.sending import KEY, ONCE, ROUTE, at, send
from fakes.server import FakeServer, Reply
from logproof.errors import (
    AuthError,
    BadReply,
    RateLimited,
    StatusError,
    TimeoutFired,
    TransportError,
    UsageError,
)
from logproof.http.endpoint import Timeouts, endpoint
from logproof.http.retry import RetryPolicy
from logproof.http.transport import Transport


@pytest.mark.parametrize(
    ("reply", "limits", "which"),
    [
        (Reply(hang=True), {"first_byte": 0.05}, "first_byte"),
        (Reply(json={}, cut=1, hang=True), {"idle": 0.05}, "idle"),
        (Reply(hang=True), {"total": 0.05}, "total"),
        (Reply(json={}, cut=1, hang=True), {"total": 0.05}, "total"),
        (Reply(json=list(range(99)), piece=1, pause=0.01), {"total": 0.05, "idle": 5.0}, "total"),
    ],
)
def test_the_limit_that_fired_is_named(fake: FakeServer, reply: Reply, limits: dict[str, float], which: str) -> None:
    fake.on(ROUTE, reply)
    with pytest.raises(TimeoutFired, match=f"the {which} time limit of 0.05 s passed") as caught:
        send(at(fake.url, **limits))
    assert (caught.value.which, caught.value.seconds) == (which, 0.05)
    assert caught.value.hint
    assert caught.value.attempts == len(fake.seen) == 2


def test_a_connection_that_never_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", never)
    with pytest.raises(TimeoutFired) as caught:
        send(at("http://engine.invalid", connect=0.02), policy=RetryPolicy(attempts=3))
    assert (caught.value.which, caught.value.attempts) == ("connect", 3)


def test_without_limits_a_reply_still_comes(fake: FakeServer) -> None:
    fake.on(ROUTE, {})
    none = Timeouts(connect=None, first_byte=None, idle=None, total=None)
    assert send(endpoint(fake.url, env={}, timeouts=none)).status == 200


def test_bytes_that_keep_coming_restart_the_idle_limit(fake: FakeServer) -> None:
    fake.on(ROUTE, Reply(json="x" * 20, piece=2, pause=0.02))
    assert len(send(at(fake.url, idle=0.15)).body) == 22


@pytest.mark.parametrize("chunked", [True, False])
def test_a_reply_over_the_size_limit_is_refused(fake: FakeServer, chunked: bool) -> None:
    fake.on(ROUTE, Reply(body="x" * 5000, chunked=chunked))
    with pytest.raises(TransportError, match="larger than 4999 bytes"):
        send(fake.url, max_reply_bytes=4999)
    assert len(fake.seen) == 1
    assert len(send(fake.url, max_reply_bytes=5000).body) == 5000


def test_a_bomb_is_measured_unpacked(fake: FakeServer) -> None:
    fake.on(ROUTE, Reply(body=gzip.compress(b"0" * 2**22), headers={"content-encoding": "gzip"}))
    with pytest.raises(TransportError, match="larger than"):
        send(fake.url)


def test_a_garbled_encoding_is_no_reply(fake: FakeServer) -> None:
    fake.on(ROUTE, Reply(body="not gzip", headers={"content-encoding": "gzip"}))
    with pytest.raises(TransportError):
        send(fake.url, policy=ONCE)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_that_admits_nobody_is_refused(limit: int) -> None:
    with pytest.raises(UsageError, match="in flight"):
        Transport(at("http://h"), limit=limit)


def test_a_rate_limit_is_waited_for_as_told(fake: FakeServer) -> None:
    fake.on(ROUTE, Reply(429, json={}, headers={"retry-after": "7"}), Reply(503, json={}), {})
    waits: list[float] = []
    assert send(fake.url, waits=waits).attempts == 3
    assert waits[0] == 7.0
    assert 0.75 <= waits[1] <= 1.0


def test_the_wait_of_a_gemini_body_is_honoured(fake: FakeServer) -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "3s"}]
    fake.on(ROUTE, Reply(429, json={"error": {"code": 429, "message": "m", "details": details}}), {})
    waits: list[float] = []
    send(fake.url, waits=waits)
    assert waits == [3.0]


def test_retries_end(fake: FakeServer) -> None:
    fake.on(ROUTE, Reply(429, json={"error": {"message": "slow down"}}))
    with pytest.raises(RateLimited, match=r"HTTP 429: slow down \(sent 3 times\)") as caught:
        send(fake.url, policy=RetryPolicy(attempts=3))
    assert caught.value.attempts == len(fake.seen) == 3


def test_a_refusal_is_sent_once(fake: FakeServer) -> None:
    fake.on(ROUTE, Reply(400, json={"error": {"message": "temperature must be in [0, 2]", "type": "BadRequestError"}}))
    with pytest.raises(StatusError, match="temperature must be") as caught:
        send(fake.url)
    assert (caught.value.code, len(fake.seen)) == ("BadRequestError", 1)


def test_an_error_body_cut_short_keeps_its_status(fake: FakeServer) -> None:
    fake.on(ROUTE, Reply(400, body="the prompt is bad", cut=10))
    with pytest.raises(StatusError, match="HTTP 400: the prompt"):
        send(fake.url)


def test_an_endless_error_body_is_read_in_part(fake: FakeServer) -> None:
    fake.on(ROUTE, Reply(400, body="x" * 900_000, cut=900_000, length=10**9, hang=True))
    with pytest.raises(StatusError, match="HTTP 400: xxx"):
        send(at(fake.url, idle=5.0))


def test_a_key_echoed_by_the_server_is_in_no_error(fake: FakeServer) -> None:
    fake.on(ROUTE, lambda seen: Reply(401, json={"detail": f"bad header {seen.headers['authorization']}"}))
    with pytest.raises(AuthError) as caught:
        send(endpoint(fake.url, key=KEY, env={}))
    assert "bad header" in str(caught.value)
    assert KEY not in f"{caught.value!r}{caught.value}{caught.value.hint}{caught.value.__dict__}"


def test_a_redirect_is_not_followed(fake: FakeServer) -> None:
    fake.on(ROUTE, Reply(307, json={}, headers={"location": "http://other.example/login?next=1"}))
    with pytest.raises(StatusError, match=r"HTTP 307: a redirect to http://other\.example/login$") as caught:
        send(endpoint(fake.url, key=KEY, env={}))
    assert len(fake.seen) == 1
    assert "not followed" in (caught.value.hint or "")


def test_a_web_page_is_no_reply(fake: FakeServer) -> None:
    fake.on(ROUTE, Reply(body="<html>", headers={"content-type": "text/html"}))
    with pytest.raises(BadReply, match="HTML page"):
        send(fake.url)


def test_an_unknown_route_asks_about_the_base_url(fake: FakeServer) -> None:
    with pytest.raises(StatusError, match="HTTP 404: Not Found") as caught:
        send(fake.url)
    assert "is the base URL right" in (caught.value.hint or "")
