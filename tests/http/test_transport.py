"""The transport against a real server: every reply it may accept, and every fault it must name."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import threading

import pytest

from fakes.sending import ASK, KEY, ONCE, ROUTE, at, send, work
from fakes.server import FakeServer, Reply, Seen
from logproof.errors import (
    BadReply,
    ContextOverflow,
    EndpointError,
    InvalidRequest,
    ServerFault,
    TransportError,
)
from logproof.http.endpoint import endpoint
from logproof.http.exchange import SseEvent, WireReply, WireRequest
from logproof.http.retry import RetryPolicy
from logproof.http.transport import Sender, Transport

STREAM = WireRequest(ROUTE, b"{}", stream=True)


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
