from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from client.test_pool import Clock, members
from eval.toy import EventList, RecordList, ToyEngine, ready, serving
from fakes.server import FakeServer, Reply
from logproof.cli.main import run
from logproof.client.connect import Connection, connect
from logproof.client.outage import POLL_S, Read, answers, difference, facts_now, is_absent
from logproof.client.pool import RESENDS, Pool
from logproof.errors import EndpointError, EngineGone, ServerFault, TimeoutFired, TransportError
from logproof.eval.run.runner import Runner, RunPolicy
from logproof.eval.run.stop_signals import run_until_signal
from logproof.http.endpoint import endpoint
from logproof.ir.facts import Facts
from logproof.store.reader import StoreReader

ROWS = 12


class Mortal(ToyEngine):
    """Dies at some request, and lives again once it was asked `back` times for its health; None: never."""

    def __init__(self, dies_at: int, back: int | None, error: EndpointError | None = None) -> None:
        super().__init__()
        self.dies_at, self.back, self.asked = dies_at, back, 0
        self.error = error or TransportError("nothing listens")
        self.behave = lambda body: self.error if self.dead else None

    @property
    def dead(self) -> bool:
        return len(self.seen) > self.dies_at and (self.back is None or self.asked < self.back)

    async def answers(self, _: Connection) -> bool:
        self.asked += self.dead
        return not self.dead


def runner(engine: Mortal, policy: RunPolicy, read: Read = facts_now) -> tuple[Runner, RecordList, Clock, EventList]:
    """A run of ROWS generated samples, one request each."""
    clock, sink, heard = Clock(), RecordList(), EventList()
    pool = Pool(members(engine, engine), ask=engine.answers, read=read, clock=clock, sleep=clock.sleep)
    jobs = ready(pool.first, "gsm8k_gen", limit=str(ROWS), shots=0)
    return Runner(jobs, pool, sink, policy, events=heard), sink, clock, heard


@pytest.mark.parametrize("error", [TransportError("nothing listens"), ServerFault(503, "no healthy upstream")])
def test_a_run_waits_for_an_engine_and_goes_on_with_no_sample_failed(error: EndpointError) -> None:
    engine = Mortal(5, back=10, error=error)
    running, sink, clock, heard = runner(engine, RunPolicy(3))
    ended = asyncio.run(running.run())
    assert (ended.ran, ended.failed, ended.reason) == (ROWS, 0, None)
    assert {s.status for s in sink.samples} == {"ok"}
    said = [fields["said"] for event, fields in heard.events if event == "outage"]
    assert len(said) == 2
    assert f"{error.message}; waiting up to 120 s" in said[0]
    assert "answers again" in said[1]
    assert clock.slept.count(POLL_S) >= 3


def test_a_run_whose_engine_stays_away_ends_and_records_no_sample_that_was_not_answered() -> None:
    engine = Mortal(5, back=None)
    running, sink, _, heard = runner(engine, RunPolicy(3, patience=60))
    with pytest.raises(EngineGone, match=r"the engine at http://\S+:1, http://\S+:2 is gone: no answer for 6\d s"):
        asyncio.run(running.run())
    assert [s.status for s in sink.samples] == ["ok"] * 5
    assert len(engine.seen) <= 5 + 3 * 4, "no sample beyond those in flight was sent"
    assert sink.flushed == 1
    assert sum(event == "outage" for event, _ in heard.events) == 1


def test_samples_that_fail_while_an_endpoint_answers_are_failed_and_the_run_goes_on() -> None:
    engine = Mortal(0, back=0)
    running, sink, clock, heard = runner(engine, RunPolicy(1))
    engine.behave = lambda body: TransportError("cut")
    ended = asyncio.run(running.run())
    assert (ended.ran, ended.failed) == (ROWS, ROWS)
    assert {s.reason for s in sink.samples} == {"TransportError: cut"}
    assert POLL_S not in clock.slept
    assert not [event for event, _ in heard.events if event == "outage"]


class Fragile(Mortal):
    """Dies whenever it gets its first prompt, with all that is in flight, and lives again some questions later."""

    def __init__(self) -> None:
        super().__init__(0, back=None)
        self.kills, self.down = 0, 0
        self.behave = self.die

    def die(self, body: Any) -> Exception | None:
        if not self.down and body["prompt"] == self.seen[0]["prompt"]:
            self.kills, self.down = self.kills + 1, 4
        return TransportError("it died") if self.down else None

    async def answers(self, _: Connection) -> bool:
        self.down = max(0, self.down - 1)
        return not self.down


def test_a_request_that_ends_the_engine_each_time_is_failed_in_the_end_and_no_other() -> None:
    engine, clock, sink = Fragile(), Clock(), RecordList()
    pool = Pool(members(engine), ask=engine.answers, clock=clock, sleep=clock.sleep)
    jobs = ready(pool.first, "gsm8k_gen", limit=str(ROWS), shots=0)
    ended = asyncio.run(Runner(jobs, pool, sink, RunPolicy(3)).run())
    assert (ended.ran, ended.failed) == (ROWS, 1)
    assert engine.kills == 1 + RESENDS


def test_an_engine_that_comes_and_goes_fails_no_sample() -> None:
    engine = Mortal(5, back=None)
    running, sink, _, _ = runner(engine, RunPolicy(3))
    flickers = iter(range(10**6))

    async def flickering(_: Connection) -> bool:
        return next(flickers) % 4 > 1

    running._pool.outage._ask = flickering
    with pytest.raises(EngineGone, match=r"is gone: no steady answer for 12\d s"):
        asyncio.run(running.run())
    assert {s.status for s in sink.samples} == {"ok"}


def test_an_engine_that_goes_for_good_after_the_last_resend_fails_no_sample() -> None:
    engine = Mortal(5, back=None)
    running, sink, _, heard = runner(engine, RunPolicy(1))
    there = iter([False, False, True, True, True, True] * RESENDS)

    async def at_times(_: Connection) -> bool:
        return next(there, False)

    running._pool.outage._ask = at_times
    with pytest.raises(EngineGone, match="no answer for"):
        asyncio.run(running.run())
    assert [s.status for s in sink.samples] == ["ok"] * 5
    assert sum(event == "outage" for event, _ in heard.events) == 2 * RESENDS + 1


def test_a_run_ends_where_another_engine_answers_after_an_outage() -> None:
    engine = Mortal(5, back=10)

    async def other(connection: Connection) -> Facts:
        return msgspec.structs.replace(connection.facts, version="9")

    running, sink, _, _ = runner(engine, RunPolicy(3), other)
    with pytest.raises(EngineGone, match=r"another engine answers at http://127.0.0.1:1: vllm 0 then, 9 now") as gone:
        asyncio.run(running.run())
    assert gone.value.hint == "start the one that the run was planned with and go on"
    assert [s.status for s in sink.samples] == ["ok"] * 5
    assert len(engine.seen) <= 5 + 3 * 4, "the other engine got no request"


@pytest.mark.parametrize("vague", [TransportError("cut"), Facts()])
def test_a_run_waits_until_an_engine_tells_what_it_is(vague: EndpointError | Facts) -> None:
    engine = Mortal(5, back=10)
    tries: list[Connection] = []

    async def later(connection: Connection) -> Facts:
        tries.append(connection)
        answer = vague if len(tries) < 4 else connection.facts
        if isinstance(answer, EndpointError):
            raise answer
        return answer

    running, sink, _, _ = runner(engine, RunPolicy(3), later)
    assert asyncio.run(running.run()).failed == 0
    assert len(sink.samples) == ROWS
    assert len(tries) == 5, "three tries, then both endpoints"

    async def never(connection: Connection) -> Facts:
        raise TransportError("cut")

    running, _, _, _ = runner(Mortal(5, back=10), RunPolicy(3), never)
    with pytest.raises(EngineGone, match="is gone: it does not tell what it is: cut for"):
        asyncio.run(running.run())


@pytest.mark.parametrize(
    ("then", "now", "said"),
    [
        ({}, {}, None),
        ({"version": "0.32.0"}, {"version": "0.99.9"}, "vllm 0.32.0 then, 0.99.9 now"),
        ({}, {"engine": "sglang"}, "engine vllm then, sglang now"),
        ({}, {"models": ("x", "y")}, "model toy then, x, y now"),
        ({"max_model_len": 8}, {"max_model_len": 9}, "max_model_len 8 then, 9 now"),
        ({"fingerprint": "a"}, {"fingerprint": "b"}, "fingerprint a then, b now"),
        ({"fields": {"/a": ("b",)}}, {"fields": {"/a": (), "/b": ()}}, "fields of 1 routes then, of 2 routes now"),
        ({"fingerprint": None}, {"fingerprint": "b"}, None),
        ({"max_logprobs": 8}, {"max_logprobs": None}, None),
        ({"version": "1"}, {"version": "x" * 999}, f"vllm 1 then, {'x' * 59}… now"),
    ],
)
def test_what_tells_another_engine(then: dict[str, Any], now: dict[str, Any], said: str | None) -> None:
    (known,) = members(ToyEngine())
    known = msgspec.structs.replace(known, facts=msgspec.structs.replace(known.facts, **then))
    assert difference(known, msgspec.structs.replace(known.facts, **now)) == said


def test_facts_are_asked_again_where_a_probe_told_them() -> None:
    async def read() -> tuple[str | None, str | None]:
        async with connect(fake.url) as known:
            fake.on("/version", {"version": "0.99.9"})
            return known.facts.version, (await facts_now(known)).version

    with serving(ToyEngine()) as fake:
        assert asyncio.run(read()) == ("0.32.0", "0.99.9")
    (given,) = members(ToyEngine())
    assert asyncio.run(facts_now(given)) == given.facts


def test_an_interrupt_ends_the_wait() -> None:
    engine = Mortal(5, back=None)
    running, sink, clock, _ = runner(engine, RunPolicy(3))
    polls: list[float] = []

    async def sleep(seconds: float) -> None:
        polls.append(seconds)
        running.stop("stopped by SIGINT", interrupted=True)
        await clock.sleep(seconds)

    running._pool.outage._sleep = sleep
    ended = asyncio.run(run_until_signal(running))
    assert ended.interrupted
    assert ended.reason == "stopped by SIGINT"
    assert {s.status for s in sink.samples} == {"ok"}
    assert polls == [POLL_S]


@pytest.mark.parametrize(
    ("error", "away"),
    [
        (TransportError("refused"), True),
        (TimeoutFired("connect", 5), True),
        (TimeoutFired("first_byte", 5), False),
        (ServerFault(503, "x"), True),
        (ServerFault(500, "x"), False),
    ],
)
def test_which_failures_are_those_of_an_absent_server(error: EndpointError, away: bool) -> None:
    assert is_absent(error) is away


@pytest.mark.parametrize(("reply", "there"), [(Reply(200), True), (Reply(404), True), (Reply(503), False)])
def test_a_server_answers_its_health_or_is_away(reply: Reply, there: bool) -> None:
    with FakeServer() as fake:
        (known,) = members(ToyEngine())
        place = msgspec.structs.replace(known, endpoint=endpoint(fake.url))
        fake.on("/health", reply)
        assert asyncio.run(answers(place)) is there
        assert len(fake.seen) == 1
    assert asyncio.run(answers(place)) is False


def test_the_command_says_how_to_go_on_and_resume_finishes_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("logproof.http.retry.backoff", lambda attempt, policy, roll: 0.0)
    engine = ToyEngine()
    out = tmp_path / "run"
    with serving(engine) as fake:
        args = ["eval", "gsm8k_gen", "--limit", "8", "--shots", "0", "-m", fake.url, "--out", str(out), "--no-canary"]
        fake.on("/health", Reply(503))
        engine.behave = lambda body: Reply(503) if len(engine.seen) > 3 else None
        assert run([*args, "-c", "2", "--patience", "0"]) == 4
        errors = capsys.readouterr().err
        assert f"error: the engine at {fake.url} is gone" in errors
        assert f"start it again and go on with: logproof eval ... --out {out} --resume" in errors
        with StoreReader(out) as store:
            assert {s.status for s in store.samples()} == {"ok"}
            before = len(store.done())
        engine.behave = lambda body: None
        assert run([*args, "--resume"]) == 0
        assert f"{8 - before} samples run, {before} stored before, 0 failed" in capsys.readouterr().err


def test_a_run_file_goes_on_with_its_next_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("logproof.http.retry.backoff", lambda attempt, policy, roll: 0.0)
    dying, living = ToyEngine(lambda body: Reply(503)), ToyEngine()
    with serving(dying) as one, serving(living) as two:
        one.on("/health", Reply(503))
        models = f"models: [{{label: a, url: '{one.url}'}}, {{label: b, url: '{two.url}'}}]"
        text = f"out: {tmp_path}/out\ntasks: [gsm8k_gen]\nsettings: {{limit: 2, shots: 0}}\npatience: 0\n{models}\n"
        (tmp_path / "run.yaml").write_text(text)
        assert run(["eval", "--config", str(tmp_path / "run.yaml")]) == 4
    assert "--out" in capsys.readouterr().err
    with StoreReader(tmp_path / "out" / "b") as store:
        assert len(store.done()) == 2


def test_the_command_ends_where_another_build_answers_at_its_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("logproof.http.retry.backoff", lambda attempt, policy, roll: 0.0)
    monkeypatch.setattr("logproof.client.outage.POLL_S", 0.0)
    engine = ToyEngine()
    out = tmp_path / "run"
    with serving(engine) as fake:
        fake.on("/health", Reply(503), Reply(200))
        fake.on("/version", {"version": "0.32.0"}, {"version": "0.99.9"})
        engine.behave = lambda body: Reply(503) if 3 < len(engine.seen) < 9 else None
        args = ["eval", "gsm8k_gen", "--limit", "8", "--shots", "0", "-m", fake.url, "--out", str(out), "--no-canary"]
        assert run([*args, "-c", "1"]) == 4
        errors = capsys.readouterr().err
        assert f"error: another engine answers at {fake.url}: vllm 0.32.0 then, 0.99.9 now" in errors
        wanted = "start the one that the run was planned with and go on with"
        assert f"{wanted}: logproof eval ... --out {out} --resume" in errors
        with StoreReader(out) as store:
            assert [s.status for s in store.samples()] == ["ok"] * 3
