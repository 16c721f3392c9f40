from __future__ import annotations

import asyncio

import pytest

from fakes.server import FakeServer
from logproof.errors import BadReply, StoreError
from logproof.proxy.captured_exchange import CapturedExchange
from logproof.proxy.recorder import Recorder
from logproof.proxy.request_plan import CHAT
from proxy.running import Kept, running, wait_for

BODY: dict[str, object] = {"model": "m"}


def exchange(name: str = "x", size: int = 0) -> CapturedExchange:
    return CapturedExchange(
        path=CHAT,
        started_at="2026-11-30T00:00:00.000+00:00",
        sent=name.encode(),
        forwarded=b"",
        sent_sha256="",
        forwarded_sha256="",
        status=200,
        content_type="application/json",
        reply=b"r" * size,
        reply_sha256="",
        served_sha256="",
        streamed=False,
        complete=True,
        added=(),
        width=None,
        seconds=0.0,
        first_byte_seconds=0.0,
    )


def test_exchanges_reach_the_sink_in_order_and_are_flushed_at_the_end() -> None:
    sink = Kept()

    async def work() -> Recorder:
        recorder = Recorder(sink, "open")
        recorder.start()
        for i in range(20):
            assert recorder.admit()
            recorder.offer(exchange(str(i)))
        await recorder.close()
        return recorder

    recorder = asyncio.run(work())
    assert [e.sent for e in sink.got] == [str(i).encode() for i in range(20)]
    assert sink.closed
    assert (recorder.counts.captured, recorder.counts.recorded, recorder.waiting) == (20, 20, 0)


def test_the_sink_ticks_while_nothing_comes_and_may_fail_then() -> None:
    sink = Kept(fault=StoreError("disk gone"))

    async def work() -> Recorder:
        recorder = Recorder(sink, "closed", tick_s=0.001)
        recorder.start()
        await asyncio.to_thread(wait_for, lambda: sink.ticks >= 2)
        await recorder.close()
        return recorder

    assert asyncio.run(work()).counts.last_error == "disk gone"


def test_a_full_queue_fails_open() -> None:
    with FakeServer() as fake, running(fake.url, capacity=2) as proxy:
        fake.on(CHAT, {"choices": []})
        proxy.sink.gate.clear()
        assert [proxy.post(CHAT, BODY).status for _ in range(5)] == [200] * 5
        wait_for(lambda: proxy.status()["captured"] == 5)
        assert proxy.status()["lost"] == 3
        assert proxy.status()["full"] is True
        proxy.sink.gate.set()
        assert len(proxy.records(2)) == 2
        wait_for(lambda: proxy.status()["waiting"] == 0)
        assert proxy.post(CHAT, BODY).status == 200
        assert len(proxy.records(3)) == 3


def test_a_full_queue_fails_closed_and_every_served_call_is_recorded() -> None:
    with FakeServer() as fake, running(fake.url, on_full="closed", capacity=2) as proxy:
        fake.on(CHAT, {"choices": []})
        proxy.sink.gate.clear()
        answers = [proxy.post(CHAT, BODY) for _ in range(4)]
        assert [a.status for a in answers] == [200, 200, 503, 503]
        assert b"fails closed" in answers[3].body
        assert proxy.call("GET", "/v1/models").status == 404
        assert (proxy.status()["refused"], proxy.status()["lost"]) == (2, 0)
        proxy.sink.gate.set()
        wait_for(lambda: proxy.status()["waiting"] == 0)
        assert proxy.post(CHAT, BODY).status == 200
        assert len(proxy.records(3)) == 3
    assert len(fake.seen) == 4


def test_a_full_disk_fails_closed_until_the_call_is_kept() -> None:
    with FakeServer() as fake, running(fake.url, on_full="closed") as proxy:
        fake.on(CHAT, {"choices": []})
        proxy.sink.fault = StoreError("the disk is full")
        assert proxy.post(CHAT, BODY).status == 200
        wait_for(lambda: proxy.status()["full"] is True)
        assert proxy.post(CHAT, BODY).status == 503
        assert proxy.status()["last_error"] == "the disk is full"
        proxy.sink.fault = None
        assert len(proxy.records(1)) == 1
        wait_for(lambda: proxy.status()["full"] is False)
        assert proxy.post(CHAT, BODY).status == 200
        assert proxy.status()["lost"] == 0


def test_a_full_disk_fails_open() -> None:
    with FakeServer() as fake, running(fake.url) as proxy:
        fake.on(CHAT, {"choices": []})
        proxy.sink.fault = StoreError("the disk is full")
        assert [proxy.post(CHAT, BODY).status for _ in range(3)] == [200] * 3
        wait_for(lambda: proxy.status()["lost"] == 3)
        assert proxy.status()["full"] is False


@pytest.mark.parametrize("fault", [BadReply("no tokens"), RuntimeError("a bug\nwith sk-abcdefgh")])
def test_what_cannot_be_recorded_does_not_stop_the_rest(fault: Exception) -> None:
    with FakeServer() as fake, running(fake.url, on_full="closed") as proxy:
        fake.on(CHAT, {"choices": []})
        proxy.sink.fault = fault
        proxy.post(CHAT, BODY)
        wait_for(lambda: proxy.status()["unreadable"] == 1)
        proxy.sink.fault = None
        assert proxy.post(CHAT, BODY).status == 200
        assert len(proxy.records(1)) == 1
        assert "sk-abcdefgh" not in str(proxy.status()["last_error"])


def test_bytes_are_bounded_too() -> None:
    sink = Kept()
    sink.gate.clear()

    async def work() -> Recorder:
        recorder = Recorder(sink, "open", max_bytes=100)
        recorder.start()
        for _ in range(3):
            recorder.admit()
            recorder.offer(exchange(size=60))
        sink.gate.set()
        await recorder.close()
        return recorder

    assert asyncio.run(work()).counts.lost == 1
    assert len(sink.got) == 2


def test_a_disk_that_stays_full_does_not_hold_the_end() -> None:
    sink = Kept(fault=StoreError("the disk is full"))

    async def work() -> Recorder:
        recorder = Recorder(sink, "closed", tick_s=0.001)
        recorder.start()
        recorder.admit()
        recorder.offer(exchange())
        await recorder.close()
        return recorder

    counts = asyncio.run(work()).counts
    assert (counts.recorded, counts.lost) == (0, 1)
