from __future__ import annotations

import asyncio
from itertools import count, islice
from typing import Any

import pytest

from eval.toy import RecordList, ToyEngine, connection, fault, ready, run
from logproof.client.pool import Pool
from logproof.errors import (
    AuthError,
    ModelNotFound,
    StoreError,
)
from logproof.eval.run.runner import Runner, RunPolicy
from logproof.store.digest import canonical

ALL = ("arc_easy_ppl", "hellaswag_ppl", "mmlu_clp", "gsm8k_gen")


@pytest.mark.parametrize("dialect", ["vllm_native", "openai_completions"])
def test_the_four_tasks_run_over_both_completions_wires(dialect: str) -> None:
    conn = connection(ToyEngine(), dialect)
    ended, sink = run(conn, ready(conn, *ALL, limit="5"))
    assert (ended.ran, ended.failed, ended.reason) == (20, 0, None)
    assert {s.status for s in sink.samples} == {"ok"}
    assert sink.flushed == 1


def test_both_wires_give_the_same_scores() -> None:
    scores = []
    for dialect in ("vllm_native", "openai_completions"):
        conn = connection(ToyEngine(), dialect)
        _, sink = run(conn, ready(conn, *ALL, limit="8"))
        scores.append(sorted((s.task, s.index, canonical(s.scores)) for s in sink.samples))
    assert scores[0] == scores[1]


def test_requests_of_a_sample_go_out_together_and_samples_in_dataset_order() -> None:
    engine = ToyEngine()
    conn = connection(engine)
    run(conn, ready(conn, "arc_easy_ppl", limit="3"), concurrency=1)
    assert engine.most == 4
    contexts = [body["prompt"].rsplit("Answer:", 1)[0] for body in engine.seen]
    assert [contexts[i * 4 : i * 4 + 4] for i in range(3)] == [[contexts[i * 4]] * 4 for i in range(3)]


def test_tasks_take_turns() -> None:
    conn = connection(ToyEngine())
    _, sink = run(conn, ready(conn, "arc_easy_ppl", "mmlu_clp", limit="3"), concurrency=1)
    assert [s.task for s in sink.samples] == ["arc_easy_ppl", "mmlu_clp"] * 3


def test_answers_belong_to_their_rows_whatever_the_timing() -> None:
    conn = connection(SlowFirst())
    _, sink = run(conn, ready(conn, "gsm8k_gen", limit="10", shots=0), concurrency=10)
    texts = {c.sample_key: c.response.choices[0].text for c in sink.calls}
    for sample in sink.samples:
        jobs = ready(conn, "gsm8k_gen", limit="10", shots=0)
        doc = next(d for d in jobs[0].docs() if d.index == sample.index)
        assert texts[sample.key].endswith(f"#### {len(jobs[0].item(doc).prompt)}")


class SlowFirst(ToyEngine):
    """Answers each prompt with its length; earlier requests answer later."""

    def __init__(self) -> None:
        super().__init__(generate=lambda prompt: f" #### {len(prompt)}")
        self._arrived = count()

    async def send(self, request: Any) -> Any:
        for _ in range(20 - next(self._arrived)):
            await asyncio.sleep(0)
        return await super().send(request)


def test_no_more_samples_exist_than_may_run() -> None:
    engine = ToyEngine()
    conn = connection(engine)
    jobs = ready(conn, "gsm8k_gen", shots=0)
    made = []
    original = jobs[0].task.build

    class Watched(RecordList):
        def put_sample(self, record: Any) -> None:
            super().put_sample(record)
            assert len(made) - len(self.samples) <= 3

    def build(row: Any, shots: Any) -> Any:
        made.append(row)
        return original(row, shots)

    object.__setattr__(jobs[0].task, "build", build)
    try:
        run(conn, jobs, Watched(), concurrency=3)
    finally:
        object.__setattr__(jobs[0].task, "build", original)
    assert engine.most <= 3


def test_a_failed_sample_is_failed_with_its_reason_and_the_others_go_on() -> None:
    conn = connection(ToyEngine(lambda body: fault() if "7 times 8" in body["prompt"][-120:] else None))
    ended, sink = run(conn, ready(conn, "mmlu_clp", limit="4"))
    assert (ended.ran, ended.failed, ended.reason) == (4, 1, None)
    failed = [s for s in sink.samples if s.status == "failed"]
    assert [s.reason for s in failed] == ["ServerFault: HTTP 500: engine fell over"]
    assert failed[0].scores == {}
    assert [c.error_type for c in sink.calls if c.status == "failed"] == ["ServerFault"]


@pytest.mark.parametrize(("policy", "ran"), [({"max_failures": 0}, 1), ({"max_failures": 2}, 3), ({}, 6)])
def test_failures_end_the_run_only_when_asked(policy: dict[str, int], ran: int) -> None:
    conn = connection(ToyEngine(lambda body: fault()))
    ended, sink = run(conn, ready(conn, "gsm8k_gen", limit="6"), concurrency=1, **policy)
    assert (ended.ran, len(sink.samples)) == (ran, ran)
    assert (ended.reason is None) == (not policy)


@pytest.mark.parametrize("error", [AuthError(401, "no"), ModelNotFound(404, "no")])
def test_what_every_sample_would_meet_ends_the_run(error: Exception) -> None:
    conn = connection(ToyEngine(lambda body: error))
    with pytest.raises(type(error)):
        run(conn, ready(conn, "gsm8k_gen", limit="6"))


def test_a_store_that_cannot_be_written_ends_the_run() -> None:
    class Full(RecordList):
        def put_sample(self, record: Any) -> None:
            raise StoreError("the disk is full")

    conn = connection(ToyEngine())
    with pytest.raises(StoreError, match="full"):
        run(conn, ready(conn, "gsm8k_gen", limit="6"), Full())


def test_done_samples_are_not_sent_again() -> None:
    engine = ToyEngine()
    conn = connection(engine)
    _, first = run(conn, ready(conn, "gsm8k_gen", limit="3"))
    engine.seen.clear()
    ended, second = run(conn, ready(conn, "gsm8k_gen", limit="5"), done={s.key for s in first.samples})
    assert (ended.skipped, ended.ran, len(engine.seen)) == (3, 2, 2)
    assert [s.index for s in second.samples] == [3, 4]
    engine.seen.clear()
    everything = {s.key for s in first.samples + second.samples}
    ended, _ = run(conn, ready(conn, "gsm8k_gen", limit="5"), done=everything)
    assert (ended.ran, engine.seen) == (0, [])


def test_repeats_are_drawn_for_generation_only() -> None:
    engine = ToyEngine()
    conn = connection(engine)
    jobs = ready(conn, "gsm8k_gen", "mmlu_clp", limit="2", repeats=3, temperature=1.0)
    assert [j.samples for j in jobs] == [6, 2]
    _, sink = run(conn, jobs)
    assert sorted(s.repeat for s in sink.samples if s.task == "gsm8k_gen") == [0, 0, 1, 1, 2, 2]
    assert {b.get("seed") for b in engine.seen if b.get("temperature") == 1.0 and "logprob_token_ids" not in b} == {
        0,
        1,
        2,
    }


def test_progress_hears_of_every_sample() -> None:
    calls: list[tuple[Any, ...]] = []

    class Hearer:
        def begin(self, task: str, total: int, done: int) -> None:
            calls.append((task, total, done))

        def advance(self, task: str, ok: bool, count: int = 1) -> None:
            calls.append((task, ok, count))

    conn = connection(ToyEngine())
    jobs = ready(conn, "gsm8k_gen", limit="3")
    done = {jobs[0].key(doc, 0) for doc in islice(jobs[0].docs(), 2)}
    asyncio.run(Runner(jobs, Pool([conn]), RecordList(), RunPolicy(1), done, Hearer()).run())
    assert calls == [("gsm8k_gen", 3, 0), ("gsm8k_gen", True, 2), ("gsm8k_gen", True, 1)], "stored samples at once"
