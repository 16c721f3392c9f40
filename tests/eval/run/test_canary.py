from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.toy import EventList, RecordList, ToyEngine, connection, fault
from logproof.client.connect import Connection
from logproof.client.pool import Pool
from logproof.eval.report.drift import FLOOR, KEY, NOISES, STARTS, Drift, drift
from logproof.eval.report.report import build
from logproof.eval.run.canary import PROMPT, Canary, canary_request
from logproof.eval.run.run import Order, RunResult, execute
from logproof.eval.run.runner import RunPolicy
from logproof.eval.tasks.task import Settings
from logproof.store.reader import StoreReader
from logproof.store.records import CallRecord

ALL = STARTS + 2


def shifted(engine: ToyEngine, by: Any) -> Any:
    """Prompt scores of the canary moved by `by(n)`, n the number of its scoring, from 0."""
    scoring = [-1]

    def behave(body: dict[str, Any]) -> dict[str, Any] | None:
        if body["prompt"] != PROMPT:
            return None
        scoring[0] += 1
        reply = engine.answer(body)
        for entry in reply["choices"][0]["prompt_logprobs"][1:]:
            for value in entry.values():
                value["logprob"] -= by(scoring[0])
        return reply

    return behave


def ran(path: Path, engine: ToyEngine, *, resume: bool = False) -> RunResult:
    order = Order(
        entries=[("gsm8k_gen", Settings(limit="4", shots=0))], out=path, policy=RunPolicy(1), resume=resume, canary=True
    )
    return asyncio.run(execute(order, Pool([connection(engine)])))


def scored(conn: Connection, whens: list[Any], heard: EventList | None = None) -> list[CallRecord]:
    sink = RecordList()

    async def go() -> None:
        canary = Canary([conn], sink.put_call, 1, heard or EventList())
        for when in whens:
            await canary.score(when)

    asyncio.run(go())
    return sink.calls


def test_a_steady_engine_is_not_marked_and_the_canary_is_in_store_and_report(tmp_path: Path) -> None:
    engine = ToyEngine()
    finished = ran(tmp_path / "run", engine)
    assert finished.report.canary == Drift(ALL - 1, 0, 0.0, 0.0, "0001 middle 0")
    assert finished.report.suspect == ()
    with StoreReader(tmp_path / "run") as store:
        parts = [c.part for c in store.calls(KEY)]
        assert build(store).canary == finished.report.canary
    assert parts == ["0001 end 0", "0001 middle 0", *(f"0001 start {i}" for i in range(STARTS))]
    places = [i for i, body in enumerate(engine.seen) if body["prompt"] == PROMPT]
    assert places == [0, 1, 2, 3, 6, 9], "before the first sample, after half of the four and after the last"


@pytest.mark.parametrize(("from_", "when"), [(STARTS, "middle"), (STARTS + 1, "end")])
def test_other_numbers_later_on_mark_the_run_suspect(tmp_path: Path, from_: int, when: str) -> None:
    engine = ToyEngine()
    engine.behave = shifted(engine, lambda n: 0.4 if n >= from_ else 0.0)
    made = ran(tmp_path / "run", engine).report
    assert made.canary is not None
    assert made.canary.drift == pytest.approx(0.4)
    assert f"the canary drifted by 0.4 nats a token (0001 {when} 0)" in made.suspect[0]
    assert made.exit_code == 2


def test_a_cold_first_scoring_is_not_held_against_the_run(tmp_path: Path) -> None:
    engine = ToyEngine()
    engine.behave = shifted(engine, lambda n: 0.4 if n == 0 else 0.0)
    assert ran(tmp_path / "run", engine).report.suspect == ()


def test_drift_within_the_noise_of_the_start_is_not_marked(tmp_path: Path) -> None:
    engine = ToyEngine()
    engine.behave = shifted(engine, lambda n: [0, 0.0, 0.1, 0.2, 0.5, 0.3][n])
    made = ran(tmp_path / "run", engine).report
    assert made.canary is not None
    assert made.canary.noise == pytest.approx(0.2)
    assert made.canary.drift == pytest.approx(0.3)
    assert made.suspect == ()


def test_a_resumed_run_is_held_against_its_first_start(tmp_path: Path) -> None:
    engine = ToyEngine()
    engine.behave = lambda body: fault() if body["prompt"] != PROMPT else None
    ran(tmp_path / "run", engine)
    engine.behave = shifted(engine, lambda n: 0.2)
    made = ran(tmp_path / "run", engine, resume=True).report
    assert "the canary drifted by 0.2 nats a token (0002" in made.suspect[0]
    engine.seen.clear()
    ran(tmp_path / "run", engine, resume=True)
    assert engine.seen == [], "nothing is left to run, so nothing is asked"


def test_other_tokens_are_a_mark_of_their_own() -> None:
    engine = ToyEngine()
    count = [0]

    def behave(body: dict[str, Any]) -> dict[str, Any] | None:
        count[0] += 1
        return engine.answer({**body, "prompt": "Another prompt of a model"}) if count[0] > STARTS else None

    engine.behave = behave
    found = drift(scored(connection(engine, tokenizer=False), ["start", "end"]))
    assert found is not None
    assert found.tokens_changed
    assert found.suspect == "the canary's tokens changed (0001 end 0)"


def test_failures_are_counted_and_end_nothing() -> None:
    heard = EventList()
    calls = scored(connection(ToyEngine(lambda body: fault())), ["start", "end"], heard)
    assert drift(calls) == Drift(0, STARTS + 1)
    assert {e for e, _ in heard.events} == {"canary"}
    assert "engine fell over" in str(heard.events[0][1]["error"])
    assert drift([]) is None


def test_a_wire_without_prompt_scores_is_asked_for_a_few_scored_tokens() -> None:
    conn = connection(ToyEngine(), "openai_chat")
    request = canary_request(conn)
    assert request is None or request.scoring.sampled == 0
    request = canary_request(connection(ToyEngine()))
    assert request is not None
    assert request.scoring.prompt == 0


@given(st.floats(0, 2), st.floats(0, 2))
def test_the_mark_is_for_drift_above_floor_and_noise(noise: float, found: float) -> None:
    marked = Drift(9, 0, noise, found, "0001 end 0").suspect is not None
    assert marked == (found > max(FLOOR, NOISES * noise))
