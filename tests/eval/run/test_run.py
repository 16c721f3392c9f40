"""Whole runs over HTTP into a store, and what people met when they resumed or hurried them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from eval.toy import ToyEngine, serving
from fakes.server import FakeServer, Reply, Seen
from logproof.client.connect import Options
from logproof.client.pool import open_pool
from logproof.errors import ResumeRefused
from logproof.eval.run.run import Order, RunResult, execute
from logproof.eval.run.runner import RunPolicy
from logproof.eval.tasks.task import Settings
from logproof.http.retry import RetryPolicy
from logproof.store.reader import StoreReader

QUICK = RetryPolicy(attempts=2, base_s=0.0)
BUSY: Any = Reply(503, json={})


def go(url: str, out: Path, task: str = "gsm8k_gen", width: int = 8, **more: Any) -> RunResult:
    resume, accept = more.pop("resume", False), more.pop("accept", ())
    options = Options(dialect=more.pop("dialect", "auto"), retry=QUICK, concurrency=width)
    settings = Settings(**{"limit": "6", "shots": 0, **more})

    async def work() -> RunResult:
        async with open_pool([url], options) as pool:
            order = Order(entries=[(task, settings)], out=out, policy=RunPolicy(width), resume=resume, accept=accept)
            return await execute(order, pool)

    return asyncio.run(work())


def samples(out: Path) -> list[Any]:
    with StoreReader(out) as store:
        return list(store.samples())


def test_replies_in_any_order_belong_to_their_rows(tmp_path: Path) -> None:
    engine = ToyEngine(generate=lambda prompt: f" {len(prompt)} letters.\n#### {len(prompt)}")

    def late(body: dict[str, Any]) -> Any:
        return Reply(json=engine.answer(body), delay=0.03 * (7 - len(engine.seen)) if len(engine.seen) < 7 else 0)

    with serving(engine) as fake:
        go(fake.url, tmp_path / "plain", width=1)
        engine.seen.clear()
        engine.behave = late
        go(fake.url, tmp_path / "late", width=6)
    plain, hurried = samples(tmp_path / "plain"), samples(tmp_path / "late")
    assert [(s.index, s.scores, s.output) for s in hurried] == [(s.index, s.scores, s.output) for s in plain]
    assert len({str(s.output) for s in plain}) > 1


@pytest.mark.parametrize("task", ["arc_easy_ppl", "hellaswag_ppl", "mmlu_clp", "gsm8k_gen"])
def test_scores_do_not_change_with_the_number_of_samples_at_a_time(tmp_path: Path, task: str) -> None:
    with serving(ToyEngine()) as fake:
        for width in (1, 2, 8):
            go(fake.url, tmp_path / str(width), task, width)
    one, two, eight = ([(s.key, s.scores, s.output) for s in samples(tmp_path / w)] for w in ("1", "2", "8"))
    assert one == two == eight


def test_another_temperature_is_another_run(tmp_path: Path) -> None:
    with serving(ToyEngine()) as fake:
        go(fake.url, tmp_path / "run")
        with pytest.raises(ResumeRefused, match=r"temperature: stored 0(\.0)?, given 0\.7"):
            go(fake.url, tmp_path / "run", resume=True, temperature=0.7)


def test_a_run_that_was_killed_before_its_report_is_reported_without_a_request(tmp_path: Path) -> None:
    engine = ToyEngine()
    with serving(engine) as fake:
        first = go(fake.url, tmp_path / "run")
        (tmp_path / "run" / "report.json").unlink()
        engine.seen.clear()
        again = go(fake.url, tmp_path / "run", resume=True)
    assert engine.seen == []
    assert again.report.tasks == first.report.tasks
    assert (tmp_path / "run" / "report.json").is_file()


def test_failed_samples_alone_are_sent_again_also_to_another_port(tmp_path: Path) -> None:
    engine = ToyEngine()
    engine.behave = lambda body: BUSY if "7 times" in body["prompt"] or "bus" in body["prompt"] else None
    with serving(engine) as fake:
        first = go(fake.url, tmp_path / "run")
    assert 0 < first.ended.failed < 6
    assert first.report.tasks[0].scored == 6 - first.ended.failed
    engine.behave = lambda body: None
    engine.seen.clear()
    with serving(engine) as other:
        second = go(other.url, tmp_path / "run", resume=True)
    assert len(engine.seen) == first.ended.failed
    assert (second.report.tasks[0].failed, second.report.tasks[0].scored) == (0, 6)
    assert len(second.report.endpoints) == 2


def _deployed(fake: FakeServer, root: str) -> None:
    fake.on("/v1/models", {"data": [{"id": "toy", "owned_by": "vllm", "root": root, "max_model_len": 2048}]})


def test_other_weights_under_the_same_name_are_refused_on_resume(tmp_path: Path) -> None:
    with serving(ToyEngine()) as fake:
        _deployed(fake, "first")
        go(fake.url, tmp_path / "run")
        _deployed(fake, "second")
        with pytest.raises(ResumeRefused, match='model.root: stored "first", given "second"'):
            go(fake.url, tmp_path / "run", resume=True)


def _named(fake: FakeServer, engine: ToyEngine, fingerprint: str, room: int) -> None:
    """The toy as a deployment that names itself in every reply, also to the probe."""

    def complete(seen: Seen) -> Any:
        body = seen.json()
        if body.get("logprobs") == 1_000_000 or "logit_bias" in body:
            return Reply(status=400, json={"error": {"message": "refused"}})
        return engine.behave(body) or {**engine.answer(body), "system_fingerprint": fingerprint}

    fake.on("/v1/completions", complete)
    fake.on("/v1/models", {"data": [{"id": "toy", "owned_by": "vllm", "max_model_len": room}]})


@pytest.mark.parametrize(
    ("changed", "room", "name"), [("build-2", 2048, "build-2"), ("build-1", 4096, "max_model_len=4096")]
)
def test_another_deployment_under_the_same_name_must_be_accepted_by_name(
    tmp_path: Path, changed: str, room: int, name: str
) -> None:
    engine = ToyEngine(lambda body: BUSY if "7 times" in body["prompt"] or "bus" in body["prompt"] else None)
    with serving(engine) as fake:
        _named(fake, engine, "build-1", 2048)
        assert go(fake.url, tmp_path / "run").ended.failed > 0
        engine.behave = lambda body: None
        _named(fake, engine, changed, room)
        with pytest.raises(ResumeRefused, match=f"stored build-1, max_model_len=2048; now {name}"):
            go(fake.url, tmp_path / "run", resume=True)
        finished = go(fake.url, tmp_path / "run", resume=True, accept=[name])
    assert finished.report.tasks[0].scored == 6
    assert bool(finished.report.suspect) == (changed != "build-1")


def test_an_answer_that_reasoning_left_no_room_for_is_empty_cut_and_asked_once(tmp_path: Path) -> None:
    message = {"role": "assistant", "content": None, "reasoning": "hm, 12 trays"}
    entries = [{"token": t, "logprob": -0.5, "top_logprobs": []} for t in ("hm", ",", " 12", " trays")]
    choice = {"index": 0, "message": message, "finish_reason": "length", "logprobs": {"content": entries}}
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
    with serving(ToyEngine()) as fake:
        fake.on("/v1/chat/completions", {"model": "toy", "choices": [choice], "usage": usage})
        finished = go(fake.url, tmp_path / "run", dialect="openai_chat")
        asked = sum(s.path == "/v1/chat/completions" for s in fake.seen)
    assert (asked, finished.ended.failed) == (6, 0)
    assert finished.report.tasks[0].flags == {"empty": 6, "truncated": 6}
    assert finished.report.exit_code == 2


def test_retries_are_counted_in_record_and_counters(tmp_path: Path) -> None:
    engine = ToyEngine()
    busy = iter([Reply(429, json={}, headers={"retry-after": "0"})])
    engine.behave = lambda body: next(busy, None)
    with serving(engine) as fake:
        finished = go(fake.url, tmp_path / "run")
    assert finished.ended.counters.retries == 1
    with StoreReader(tmp_path / "run") as store:
        assert sorted(c.attempts for c in store.calls()) == [1, 1, 1, 1, 1, 2]
