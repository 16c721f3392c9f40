from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eval.toy import EventList, RecordList, ToyEngine, connection, fault, ready, serving
from fakes.server import FakeServer
from logproof.client.connect import Connection, Options
from logproof.client.pool import MAX_REST_S, REST_S, ROUNDS, Pool, open_pool
from logproof.errors import BadReply, EndpointError, RateLimited, TransportError, UsageError
from logproof.eval.plan.run_identity import provenance
from logproof.eval.run.run import Order, execute
from logproof.eval.run.runner import Runner, RunPolicy
from logproof.eval.tasks.task import Settings
from logproof.http.endpoint import endpoint
from logproof.http.retry import RetryPolicy
from logproof.ir.request import Input, Request, Sampling

REQUEST = Request("toy", Input(text="Say it"), Sampling(max_tokens=4))


class Clock:
    """Time that passes only in sleep."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def members(*engines: ToyEngine, **facts: Any) -> list[Connection]:
    return [
        msgspec.structs.replace(connection(e, **facts), endpoint=endpoint(f"http://127.0.0.1:{i}"))
        for i, e in enumerate(engines, start=1)
    ]


class Rests:
    """Keeps (endpoint, seconds) of each rest."""

    def __init__(self) -> None:
        self.rests: list[tuple[str, float]] = []

    def outage(self, line: str) -> None:
        pass

    def rest(self, endpoint: str, error: Exception, seconds: float) -> None:
        self.rests.append((endpoint, seconds))


def pooled(*engines: ToyEngine) -> tuple[Pool, Clock, list[tuple[str, float]]]:
    clock, listener = Clock(), Rests()
    pool = Pool(members(*engines), clock=clock, sleep=clock.sleep)
    pool.subscribe(listener)
    return pool, clock, listener.rests


def test_requests_go_to_the_endpoint_with_the_least_in_flight() -> None:
    engines = ToyEngine(), ToyEngine(), ToyEngine()
    pool, _, _ = pooled(*engines)

    async def many() -> None:
        await asyncio.gather(*(pool.call(REQUEST) for _ in range(9)))

    asyncio.run(many())
    assert [len(e.seen) for e in engines] == [3, 3, 3]


@pytest.mark.parametrize("error", [TransportError("gone"), fault(), RateLimited(429, "slow down")])
def test_what_an_endpoint_fails_another_does_and_the_first_rests(error: EndpointError) -> None:
    bad, good = ToyEngine(lambda body: error), ToyEngine()
    pool, clock, rests = pooled(bad, good)

    async def go() -> None:
        for _ in range(3):
            reached = await pool.call(REQUEST)
            assert not isinstance(reached.result, Exception)
            assert reached.endpoint == "http://127.0.0.1:2"
        assert (len(bad.seen), len(good.seen)) == (1, 3)
        assert rests == [("http://127.0.0.1:1", REST_S)]
        clock.now = REST_S
        await pool.call(REQUEST)
        assert rests[1:] == [("http://127.0.0.1:1", 2 * REST_S)]

    asyncio.run(go())


def test_an_endpoint_that_answers_again_is_used_again() -> None:
    answers = iter([fault()])
    shaky, good = ToyEngine(lambda body: next(answers, None)), ToyEngine()
    pool, clock, rests = pooled(shaky, good)

    async def go() -> None:
        await pool.call(REQUEST)
        clock.now = REST_S
        assert (await pool.call(REQUEST)).endpoint == "http://127.0.0.1:1"

    asyncio.run(go())
    assert len(rests) == 1


def test_where_all_fail_the_request_waits_goes_round_again_and_fails_with_the_last_error() -> None:
    one, two = ToyEngine(lambda body: fault("one")), ToyEngine(lambda body: fault("two"))
    pool, clock, _ = pooled(one, two)
    reached = asyncio.run(pool.call(REQUEST))
    assert "HTTP 500" in str(reached.result)
    assert (len(one.seen), len(two.seen)) == (ROUNDS, ROUNDS)
    assert clock.slept == [REST_S]


def test_a_rest_grows_to_its_limit_only() -> None:
    pool, clock, rests = pooled(ToyEngine(lambda body: fault()), ToyEngine())

    async def go() -> None:
        for _ in range(8):
            await pool.call(REQUEST)
            clock.now += MAX_REST_S

    asyncio.run(go())
    assert rests[-1][1] == MAX_REST_S


def test_a_bad_reply_is_the_requests_own_fault_and_asked_once() -> None:
    one, two = ToyEngine(lambda body: BadReply("odd")), ToyEngine()
    pool, _, rests = pooled(one, two)
    assert isinstance(asyncio.run(pool.call(REQUEST)).result, BadReply)
    assert (len(one.seen), len(two.seen), rests) == (1, 0, [])


def test_one_endpoint_alone_never_rests() -> None:
    engine = ToyEngine(lambda body: fault())
    pool, clock, rests = pooled(engine)
    asyncio.run(pool.call(REQUEST))
    assert (len(engine.seen), rests, clock.slept) == (1, [], [])


@pytest.mark.parametrize(
    ("change", "said"), [({"max_model_len": 9}, "max_model_len: None and 9"), ({"model_root": "x"}, "model_root")]
)
def test_endpoints_that_differ_are_refused(change: dict[str, Any], said: str) -> None:
    (one,), (_, two) = members(ToyEngine()), members(ToyEngine(), ToyEngine(), **change)
    with pytest.raises(UsageError, match=said):
        Pool([one, two])


def test_the_same_endpoint_twice_is_refused() -> None:
    one = connection(ToyEngine())
    with pytest.raises(UsageError, match="named twice"):
        Pool([one, one])


def test_a_pool_without_a_tokenizer_has_none() -> None:
    pool = Pool([connection(ToyEngine(), tokenizer=False)])
    assert pool.tokenizer is None
    with pytest.raises(UsageError, match="has no tokenizer"):
        asyncio.run(pool.encode("a"))


def test_versions_and_fingerprints_are_kept_for_each_endpoint() -> None:
    one, two = members(ToyEngine(), ToyEngine())
    facts = msgspec.structs.replace(two.facts, version="9", fingerprint="fp2")
    two = msgspec.structs.replace(two, facts=facts)
    stored = provenance(ready(one, "gsm8k_gen", limit="1"), Pool([one, two]).connections, {})
    assert stored.endpoints == ("http://127.0.0.1:1", "http://127.0.0.1:2")
    assert stored.fingerprints == ("fp2",)
    assert stored.versions["engine"] == "vllm 0, vllm 9"
    assert isinstance(stored.facts, dict)
    assert stored.facts["http://127.0.0.1:2"].version == "9"


def test_a_run_goes_on_where_one_of_two_endpoints_dies_half_way() -> None:
    dying = ToyEngine()
    dying.behave = lambda body: TransportError("gone") if len(dying.seen) > 5 else None
    pool, _, _ = pooled(dying, ToyEngine())
    jobs, sink, heard = ready(pool.first, "arc_easy_ppl", limit="8"), RecordList(), EventList()
    ended = asyncio.run(Runner(jobs, pool, sink, RunPolicy(2), events=heard).run())
    assert (ended.ran, ended.failed) == (8, 0)
    rested = [fields for event, fields in heard.events if event == "endpoint_rests"]
    assert [(f["endpoint"], f["seconds"]) for f in rested] == [("http://127.0.0.1:1", REST_S)]
    assert {c.endpoint for c in sink.calls} == {"http://127.0.0.1:1", "http://127.0.0.1:2"}


def test_several_urls_over_http_share_one_run(tmp_path: Path) -> None:
    engines = ToyEngine(), ToyEngine()

    async def go(urls: list[str]) -> None:
        async with open_pool(urls, Options(concurrency=4)) as pool:
            order = Order(entries=[("gsm8k_gen", Settings(limit="6", shots=0))], out=tmp_path / "run")
            finished = await execute(order, pool)
        assert finished.ended.failed == 0
        assert list(finished.report.endpoints) == urls

    with serving(engines[0]) as one, serving(engines[1]) as two:
        asyncio.run(go([one.url, two.url]))
    assert all(e.seen for e in engines)


class Announcements:
    """Lines that a pool tells; `until` waits for one that ends so."""

    def __init__(self, end: str) -> None:
        self.lines: list[str] = []
        self._end, self._came = end, asyncio.Event()

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        if line.endswith(self._end):
            self._came.set()

    async def until(self) -> None:
        await asyncio.wait_for(self._came.wait(), 60)


def test_an_endpoint_that_is_down_at_the_start_joins_when_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logproof.client.pool.REST_S", 0.01)
    first, late = ToyEngine(), ToyEngine()
    announcements = Announcements("answers now and takes its share")

    async def go(urls: list[str]) -> None:
        async with open_pool(urls, Options(concurrency=2), announcements) as pool:
            assert [c.endpoint.display for c in pool.connections] == urls[1:]
            await announcements.until()
            order = Order(entries=[("gsm8k_gen", Settings(limit="6", shots=0))], out=tmp_path / "run")
            finished = await execute(order, pool)
        assert finished.ended.failed == 0
        assert sorted(finished.report.endpoints) == sorted(urls)

    with serving(first) as one, serving(late, down=4) as two:
        asyncio.run(go([two.url, one.url]))
        assert any(line.startswith(f"{two.url} is left out until it answers: HTTP 503") for line in announcements.lines)
    assert first.seen
    assert late.seen


def test_an_endpoint_that_comes_back_as_another_model_stays_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logproof.client.pool.REST_S", 0.01)
    announcements = Announcements("differ in model: 'toy' and 'other'")

    async def go(urls: list[str]) -> None:
        async with open_pool(urls, announce=announcements) as pool:
            await announcements.until()
            assert len(pool.connections) == 1

    with serving(ToyEngine()) as one, serving(ToyEngine(), down=3, name="other") as two:
        asyncio.run(go([one.url, two.url]))
        assert announcements.lines[-1].startswith(f"{two.url} stays out: ")


def test_where_no_endpoint_answers_the_run_is_refused() -> None:
    async def go(urls: list[str]) -> None:
        async with open_pool(urls, Options(retry=RetryPolicy(attempts=1))):
            raise AssertionError("it opened")

    with FakeServer() as one, FakeServer() as two:
        urls = [one.url, two.url]
    with pytest.raises(TransportError, match="connection refused"):
        asyncio.run(go(urls))


def test_an_endpoint_of_another_fingerprint_cannot_join() -> None:
    pool = Pool(members(ToyEngine(), fingerprint="fp-1"))
    (late,) = members(ToyEngine(), fingerprint="fp-2")
    late = msgspec.structs.replace(late, endpoint=endpoint("http://127.0.0.1:9"))
    with pytest.raises(UsageError, match="its fingerprint 'fp-2' is none of this run's"):
        pool.join(late)
    assert len(pool.connections) == 1


def test_urls_are_checked_before_anything_is_sent() -> None:
    async def go(urls: list[str]) -> None:
        async with open_pool(urls):
            raise AssertionError("it opened")

    with FakeServer() as fake:
        for urls, said in (([fake.url, "127.0.0.1:1"], "has no scheme"), ([fake.url, f"{fake.url}/v1"], "named twice")):
            with pytest.raises(UsageError, match=said):
                asyncio.run(go(urls))
        assert fake.seen == []
