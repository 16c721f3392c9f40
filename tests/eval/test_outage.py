from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eval.test_pool import Clock, members
from eval.toy import Heard, ListSink, ToyEngine, ready, serving
from fakes.server import FakeServer, Reply
from logproof.cli.main import run
from logproof.errors import EndpointError, EngineGone, ServerFault, TimeoutFired, TransportError
from logproof.eval.outage import POLL_S, answers, nobody
from logproof.eval.pool import RESENDS, Pool
from logproof.eval.runner import Policy, Runner, run_until_signal
from logproof.models.connect import Connection
from logproof.records.reader import StoreReader
from logproof.wire.endpoint import endpoint

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


def runner(engine: Mortal, policy: Policy) -> tuple[Runner, ListSink, Clock, Heard]:
    """A run of ROWS generated samples, one request each."""
    clock, sink, heard = Clock(), ListSink(), Heard()
    pool = Pool(members(engine, engine), ask=engine.answers, clock=clock, sleep=clock.sleep)
    jobs = ready(pool.first, "gsm8k_gen", limit=str(ROWS), shots=0)
    return Runner(jobs, pool, sink, policy, events=heard), sink, clock, heard


@pytest.mark.parametrize("error", [TransportError("nothing listens"), ServerFault(503, "no healthy upstream")])
def test_a_run_waits_for_an_engine_and_goes_on_with_no_sample_failed(error: EndpointError) -> None:
    engine = Mortal(5, back=10, error=error)
    running, sink, clock, heard = runner(engine, Policy(3))
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
    running, sink, _, heard = runner(engine, Policy(3, patience=60))
    with pytest.raises(EngineGone, match=r"the engine at http://\S+:1, http://\S+:2 is gone: no answer for 6\d s"):
        asyncio.run(running.run())
    assert [s.status for s in sink.samples] == ["ok"] * 5
    assert len(engine.seen) <= 5 + 3 * 4, "no sample beyond those in flight was sent"
    assert sink.flushed == 1
    assert sum(event == "outage" for event, _ in heard.events) == 1


def test_samples_that_fail_while_an_endpoint_answers_are_failed_and_the_run_goes_on() -> None:
    engine = Mortal(0, back=0)
    running, sink, clock, heard = runner(engine, Policy(1))
    engine.behave = lambda body: TransportError("cut")
    ended = asyncio.run(running.run())
    assert (ended.ran, ended.failed) == (ROWS, ROWS)
    assert {s.reason for s in sink.samples} == {"TransportError: cut"}
    assert POLL_S not in clock.slept
    assert not [event for event, _ in heard.events if event == "outage"]


def test_a_request_that_ends_the_engine_each_time_is_failed_in_the_end() -> None:
    engine = Mortal(10**9, back=None)
    killers: list[Any] = []

    def behave(body: Any) -> Exception | None:
        if len(killers) and body["prompt"] != killers[0]["prompt"]:
            return None
        killers.append(body)
        return TransportError("it died")

    async def answers_later(_: Connection) -> bool:
        engine.asked += 1
        return engine.asked % 4 == 0

    clock, sink = Clock(), ListSink()
    engine.behave = behave
    pool = Pool(members(engine), ask=answers_later, clock=clock, sleep=clock.sleep)
    jobs = ready(pool.first, "gsm8k_gen", limit="3", shots=0)
    ended = asyncio.run(Runner(jobs, pool, sink, Policy(1)).run())
    assert (ended.ran, ended.failed) == (3, 1)
    assert len(killers) == 1 + RESENDS


def test_an_interrupt_ends_the_wait() -> None:
    engine = Mortal(5, back=None)
    running, sink, clock, _ = runner(engine, Policy(3))
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
    assert nobody(error) is away


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
    monkeypatch.setattr("logproof.wire.retry.backoff", lambda attempt, policy, roll: 0.0)
    engine = ToyEngine()
    out = tmp_path / "run"
    with serving(engine) as fake:
        args = ["eval", "gsm8k_gen", "--limit", "8", "--shots", "0", "-m", fake.url, "--out", str(out), "--no-canary"]
        fake.on("/health", Reply(503))
        engine.behave = lambda body: Reply(503) if len(engine.seen) > 3 else None
        assert run([*args, "-c", "2", "--patience", "0"]) == 4
        told = capsys.readouterr().err
        assert f"error: the engine at {fake.url} is gone" in told
        assert f"start it again and go on with: logproof eval ... --out {out} --resume" in told
        with StoreReader(out) as store:
            assert {s.status for s in store.samples()} == {"ok"}
            before = len(store.done())
        engine.behave = lambda body: None
        assert run([*args, "--resume"]) == 0
        assert f"{8 - before} samples run, {before} stored before, 0 failed" in capsys.readouterr().err


def test_a_run_file_goes_on_with_its_next_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("logproof.wire.retry.backoff", lambda attempt, policy, roll: 0.0)
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
