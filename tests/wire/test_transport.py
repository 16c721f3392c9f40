"""The transport against a real server: every reply it may accept, and every fault it must name."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from fakes.server import FakeServer, Reply, Seen
from logproof.errors import (
    AuthError,
    BadReply,
    ContextOverflow,
    EndpointError,
    InvalidRequest,
    RateLimited,
    ServerFault,
    StatusError,
    TimeoutFired,
    TransportError,
    UsageError,
)
from logproof.wire.endpoint import Endpoint, Timeouts, endpoint
from logproof.wire.message import SseEvent, WireReply, WireRequest
from logproof.wire.retry import RetryPolicy
from logproof.wire.transport import Sender, Transport

T = TypeVar("T")

ROUTE = "/v1/completions"
ASK = WireRequest(ROUTE, b'{"prompt":"Hi"}')
STREAM = WireRequest(ROUTE, b"{}", stream=True)
ONCE = RetryPolicy(attempts=1)
KEY = "sk-test-ABC123"
Job = Callable[[Transport], Awaitable[T]]


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    with FakeServer() as server:
        yield server


def at(url: str, **limits: float) -> Endpoint:
    return endpoint(url, env={}, timeouts=Timeouts(**limits))


def work(
    where: Endpoint | str,
    job: Job[T],
    *,
    policy: RetryPolicy | None = None,
    limit: int | None = None,
    max_reply_bytes: int = 2**20,
    waits: list[float] | None = None,
) -> T:
    """Run a job on a transport whose waits between attempts take no time and are noted."""

    async def nap(seconds: float) -> None:
        if waits is not None:
            waits.append(seconds)

    async def run() -> T:
        target = where if isinstance(where, Endpoint) else at(where)
        async with Transport(
            target, policy=policy, limit=limit, max_reply_bytes=max_reply_bytes, rng=random.Random(1), sleep=nap
        ) as transport:
            return await job(transport)

    return asyncio.run(run())


def send(
    where: Endpoint | str,
    request: WireRequest = ASK,
    *,
    policy: RetryPolicy | None = None,
    max_reply_bytes: int = 2**20,
    waits: list[float] | None = None,
) -> WireReply:
    return work(where, lambda t: t.send(request), policy=policy, max_reply_bytes=max_reply_bytes, waits=waits)


# --- replies that are accepted


def test_a_plain_reply_comes_back_whole(fake: FakeServer) -> None:
    fake.on(ROUTE, Reply(json={"ok": "é"}, headers={"X-Request-Id": "r1"}))
    reply = send(fake.url)
    assert (reply.status, reply.body) == (200, '{"ok": "é"}'.encode())
    assert reply.header("X-Request-ID") == "r1"
    assert reply.header("absent") is None
    assert (reply.attempts, reply.events) == (1, None)
    assert 0 < (reply.first_byte_seconds or 0) <= reply.seconds


def test_what_is_sent(fake: FakeServer) -> None:
    fake.on("/base" + ROUTE, {})
    target = endpoint(f"{fake.url}/base/v1", key=KEY, headers={"X-Org": "o"}, env={})
    send(target, WireRequest(ROUTE + "?a=b%2Fc", b"{}", headers=(("anthropic-version", "1"),)))
    seen = fake.seen[0]
    assert (seen.method, seen.path, seen.body) == ("POST", f"/base{ROUTE}?a=b%2Fc", b"{}")
    sent = {name: seen.headers[name] for name in ("authorization", "x-org", "anthropic-version", "content-type")}
    assert sent == {
        "authorization": f"Bearer {KEY}",
        "x-org": "o",
        "anthropic-version": "1",
        "content-type": "application/json",
    }
    assert seen.headers["accept-encoding"] == "gzip, deflate"
    assert "cookie" not in seen.headers


def test_get_has_no_body(fake: FakeServer) -> None:
    fake.on("/v1/models", {"data": []})
    assert send(fake.url, WireRequest("/v1/models", method="GET")).body == b'{"data": []}'
    assert (fake.seen[0].method, fake.seen[0].body) == ("GET", b"")


def test_a_large_body_is_sent_whole(fake: FakeServer) -> None:
    fake.on(ROUTE, {})
    body = b"x" * (2**20 + 7)
    send(fake.url, WireRequest(ROUTE, body))
    assert fake.seen[0].body == body


def test_slow_and_chunked_bytes_are_put_together(fake: FakeServer) -> None:
    fake.on(ROUTE, Reply(json={"text": "é猫"}, chunked=True, piece=1))
    assert json.loads(send(fake.url).body) == {"text": "é猫"}


def test_a_compressed_reply_is_unpacked(fake: FakeServer) -> None:
    fake.on(ROUTE, Reply(body=gzip.compress(b"{}" * 500), headers={"content-encoding": "gzip"}))
    assert send(fake.url).body == b"{}" * 500


def test_connections_are_reused(fake: FakeServer) -> None:
    fake.on(ROUTE, {})

    async def thrice(transport: Transport) -> None:
        for _ in range(3):
            await transport.send(ASK)

    work(fake.url, thrice)
    assert (len(fake.seen), fake.connections) == (3, 1)


def test_no_more_requests_are_in_flight_than_admitted(fake: FakeServer) -> None:
    fake.on(ROUTE, {})

    async def many(transport: Transport) -> list[WireReply]:
        return await asyncio.gather(*(transport.send(ASK) for _ in range(20)))

    assert len(work(fake.url, many, limit=3)) == 20
    assert fake.connections <= 3


def test_cookies_are_not_kept(fake: FakeServer) -> None:
    fake.on(ROUTE, Reply(json={}, headers={"set-cookie": "a=b"}))

    async def twice(transport: Transport) -> None:
        await transport.send(ASK)
        await transport.send(ASK)

    work(fake.url, twice)
    assert "cookie" not in fake.seen[1].headers


# --- streams


def test_a_stream_gives_its_events_and_bytes(fake: FakeServer) -> None:
    fake.on(ROUTE, Reply(events=[("delta", {"t": "猫"}), {"a": 1}, "[DONE]"], piece=5))
    reply = send(fake.url, STREAM)
    assert reply.events == (SseEvent("delta", '{"t": "猫"}'), SseEvent(None, '{"a": 1}'), SseEvent(None, "[DONE]"))
    assert reply.body == 'event: delta\ndata: {"t": "猫"}\n\ndata: {"a": 1}\n\ndata: [DONE]\n\n'.encode()


def test_a_stream_without_its_last_blank_line_keeps_its_last_event(fake: FakeServer) -> None:
    fake.on(ROUTE, Reply(body="data: a\n\ndata: [DONE]", headers={"content-type": "text/event-stream"}))
    assert [event.data for event in send(fake.url, STREAM).events or ()] == ["a", "[DONE]"]


def test_an_error_object_inside_a_stream_is_raised(fake: FakeServer) -> None:
    text = "The input (2101 tokens) is longer than the model's context length (2048 tokens)."
    fake.on(ROUTE, Reply(events=[{"a": 1}, {"error": {"message": text, "code": 400}}, "[DONE]"]))
    with pytest.raises(ContextOverflow, match="HTTP 400") as caught:
        send(fake.url, STREAM)
    assert (caught.value.attempts, len(fake.seen)) == (1, 1)


def test_a_passing_error_inside_a_stream_is_retried(fake: FakeServer) -> None:
    overloaded = ("error", {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}})
    fake.on(ROUTE, Reply(events=[overloaded]), Reply(events=["[DONE]"]))
    assert send(fake.url, STREAM).attempts == 2


def test_an_error_object_at_the_unfinished_end_of_a_stream_is_raised(fake: FakeServer) -> None:
    fake.on(ROUTE, Reply(body='data: {"error":{"message":"m"}}', headers={"content-type": "text/event-stream"}))
    with pytest.raises(ServerFault, match="m"):
        send(fake.url, STREAM, policy=ONCE)


def test_a_cut_stream_is_no_reply(fake: FakeServer) -> None:
    fake.on(ROUTE, Reply(events=[{"a": 1}, {"b": 2}, "[DONE]"], cut=20))
    with pytest.raises(TransportError, match="was cut"):
        send(fake.url, STREAM, policy=ONCE)


def test_a_reply_that_does_not_stream_is_refused(fake: FakeServer) -> None:
    fake.on(ROUTE, {})
    with pytest.raises(BadReply, match="a stream was asked for, the reply is application/json"):
        send(fake.url, STREAM)
    assert len(fake.seen) == 1


# --- faults of the connection


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


# --- limits


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


# --- statuses


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


# --- use


@pytest.mark.parametrize("path", ["@evil.example/x", "", "/a b", "/é", "/a\r\nX: y"])
def test_a_path_must_begin_at_the_root(path: str) -> None:
    with pytest.raises(InvalidRequest, match="must begin with / and be percent-encoded"):
        send("http://h", WireRequest(path, b"{}"))


def test_sending_outside_the_context_is_a_mistake() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        asyncio.run(Transport(at("http://h")).send(ASK))


def test_leaving_without_entering_does_nothing() -> None:
    asyncio.run(Transport(at("http://h")).__aexit__(None, None, None))


def test_a_cancelled_request_frees_its_place(fake: FakeServer) -> None:
    arrived = threading.Event()

    def hang(seen: Seen) -> Reply:
        arrived.set()
        return Reply(hang=True)

    fake.on(ROUTE, hang, {})

    async def job(transport: Transport) -> int:
        first = asyncio.create_task(transport.send(ASK))
        await asyncio.to_thread(arrived.wait)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        return (await transport.send(ASK)).status

    assert work(fake.url, job, limit=1) == 200


def test_errors_are_typed_for_any_sender() -> None:
    class Canned:
        async def send(self, request: WireRequest) -> WireReply:
            raise EndpointError("none")

    sender: Sender = Canned()
    with pytest.raises(EndpointError):
        asyncio.run(sender.send(ASK))


def test_many_threads_of_faults_end_in_right_answers(fake: FakeServer) -> None:
    """Faults at a third of the calls: each reply still belongs to its own request."""
    dice = random.Random(3)
    faults = [Reply(drop=True), Reply(500, json={}), Reply(429, json={}), Reply(json={"n": -1}, cut=3)]
    lock = threading.Lock()

    def answer(seen: Seen) -> Reply:
        with lock:
            fault = dice.choice(faults) if dice.random() < 0.33 else None
        return fault or Reply(json=seen.json())

    fake.on(ROUTE, answer)

    async def job(transport: Transport) -> list[bytes]:
        requests = [WireRequest(ROUTE, json.dumps({"n": n}).encode()) for n in range(60)]
        return [reply.body for reply in await asyncio.gather(*map(transport.send, requests))]

    replies = work(fake.url, job, policy=RetryPolicy(attempts=12), limit=8)
    assert [json.loads(body)["n"] for body in replies] == list(range(60))


@pytest.mark.parametrize("stream", [False, True])
def test_a_key_that_a_reply_repeats_is_masked(stream: bool) -> None:
    key = "sk-test-ABC123"
    events = [{"data": f'{{"model": "{key}"}}'}, {"data": "[DONE]"}]
    with FakeServer() as fake:
        fake.on("/x", Reply(events=[e["data"] for e in events]) if stream else {"model": key, "text": "kept"})

        async def send() -> WireReply:
            async with Transport(endpoint(fake.url, key=key)) as transport:
                return await transport.send(WireRequest("/x", b"{}", stream=stream))

        reply = asyncio.run(send())
    assert key.encode() not in reply.body
    assert b"redacted" in reply.body
    assert key not in "".join(e.data for e in reply.events or ())
    assert stream or b"kept" in reply.body
