from __future__ import annotations

import asyncio
import os
import signal
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest

from eval.toy import RecordList, ToyEngine, connection, fault, logprob, ready, run
from logproof.client.pool import Pool
from logproof.errors import (
    AuthError,
    ModelNotFound,
    StoreError,
)
from logproof.eval.run.runner import Runner, RunPolicy, run_until_signal
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


def test_option_sums_are_those_of_the_engine() -> None:
    engine = ToyEngine()
    conn = connection(engine)
    jobs = ready(conn, "arc_easy_ppl", limit="1")
    item: Any = jobs[0].item(next(jobs[0].docs()))
    _, sink = run(conn, jobs)
    before = engine.tokenizer.pieces(item.context)
    for i, continuation in enumerate(item.continuations):
        pieces = engine.tokenizer.pieces(continuation)
        whole = before + pieces
        want = sum(logprob(whole[:j], whole[j]) for j in range(len(before), len(whole)))
        output: Any = sink.samples[0].output
        assert output["sums"][i] == pytest.approx(want, abs=1e-12)
        assert output["tokens"][i] == len(pieces)


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


def test_one_bad_option_fails_the_row_and_the_good_calls_are_kept() -> None:
    engine = ToyEngine()
    engine.behave = lambda body: fault() if len(engine.seen) == 2 else None
    conn = connection(engine)
    _, sink = run(conn, ready(conn, "arc_easy_ppl", limit="1"), concurrency=1)
    assert sink.samples[0].status == "failed"
    assert sorted(c.status for c in sink.calls) == ["failed", "ok", "ok", "ok"]


def test_a_reply_that_lacks_its_channel_fails_the_sample() -> None:
    def short(body: dict[str, Any]) -> dict[str, Any]:
        return {"choices": [{"index": 0, "text": "x", "finish_reason": "stop", "prompt_logprobs": [None]}],
                "usage": {"prompt_tokens": 12}}  # fmt: skip

    conn = connection(ToyEngine(short))
    ended, sink = run(conn, ready(conn, "arc_easy_ppl", limit="2"))
    assert ended.failed == 2
    assert all("MissingChannel" in str(s.reason) for s in sink.samples)


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


def test_unconditional_scores_come_with_their_own_requests() -> None:
    engine = ToyEngine()
    conn = connection(engine)
    _, sink = run(conn, ready(conn, "arc_easy_ppl", "hellaswag_ppl", limit="1", uncond=True))
    scores = {s.task: s.scores for s in sink.samples}
    assert "acc_uncond" in scores["arc_easy_ppl"]
    assert "acc_uncond" not in scores["hellaswag_ppl"]
    assert len(engine.seen) == 12


def test_without_ids_or_tokenizer_texts_find_the_same_spans() -> None:
    with_ids = connection(ToyEngine(), "openai_completions")
    without = connection(ToyEngine(), "openai_completions", tokenizer=False)
    outputs = []
    for conn in (with_ids, without):
        _, sink = run(conn, ready(conn, "arc_easy_ppl", limit="4"))
        outputs.append({s.index: s.output for s in sink.samples})
    for index, output in outputs[0].items():
        other: Any = outputs[1][index]
        assert output["sums"] == other["sums"]
        assert other["span"].rule == "texts"


def test_a_completion_that_cannot_fit_is_refused_before_it_is_sent() -> None:
    engine = ToyEngine()
    conn = connection(engine, max_model_len=60)
    ended, sink = run(conn, ready(conn, "gsm8k_gen", limit="2", shots=0, max_tokens=50))
    assert ended.failed == 2
    assert "ContextOverflow" in str(sink.samples[0].reason)
    assert "the context has 60" in str(sink.samples[0].reason)
    assert engine.seen == []


def test_a_context_that_cannot_fit_is_refused_before_it_is_sent() -> None:
    engine = ToyEngine()
    conn = connection(engine, max_model_len=4)
    ended, _ = run(conn, ready(conn, "arc_easy_ppl", limit="1"))
    assert (ended.failed, engine.seen) == (1, [])


def test_a_completion_cut_by_the_context_without_a_word_is_failed() -> None:
    engine = ToyEngine(generate=lambda prompt: " a b c d e f")
    conn = connection(engine, tokenizer=False, max_model_len=200)
    job = ready(conn, "gsm8k_gen", limit="1", shots=0, max_tokens=150)
    prompt = job[0].item(next(job[0].docs())).prompt
    room = len(engine.tokenizer.pieces(prompt)) + 3
    conn = connection(engine, tokenizer=False, max_model_len=max(room, 151))
    engine.behave = lambda body: {
        "choices": [{"index": 0, "text": " a b c", "finish_reason": "length",
                     "logprobs": {"tokens": ["token_id:0"] * 3, "token_logprobs": [-1.0] * 3}, "token_ids": [0] * 3}],
        "usage": {"prompt_tokens": max(room, 151) - 3, "completion_tokens": 3},
    }  # fmt: skip
    ended, sink = run(conn, ready(conn, "gsm8k_gen", limit="1", shots=0, max_tokens=150))
    assert ended.failed == 1
    assert "was cut at 3 tokens by the context" in str(sink.samples[0].reason)


def test_flags_tell_empty_and_cut_texts() -> None:
    conn = connection(ToyEngine(generate=lambda prompt: " word" * 20))
    _, sink = run(conn, ready(conn, "gsm8k_gen", limit="1", max_tokens=4))
    assert sink.samples[0].output["flags"] == ["truncated"]
    conn = connection(ToyEngine(generate=lambda prompt: " "))
    _, sink = run(conn, ready(conn, "gsm8k_gen", limit="1"))
    assert sink.samples[0].output["flags"] == ["empty"]


def test_progress_hears_of_every_sample() -> None:
    told: list[tuple[Any, ...]] = []

    class Told:
        def begin(self, task: str, total: int, done: int) -> None:
            told.append((task, total, done))

        def advance(self, task: str, ok: bool, count: int = 1) -> None:
            told.append((task, ok, count))

    conn = connection(ToyEngine())
    jobs = ready(conn, "gsm8k_gen", limit="3")
    done = {jobs[0].key(doc, 0) for doc in islice(jobs[0].docs(), 2)}
    asyncio.run(Runner(jobs, Pool([conn]), RecordList(), RunPolicy(1), done, Told()).run())
    assert told == [("gsm8k_gen", 3, 0), ("gsm8k_gen", True, 2), ("gsm8k_gen", True, 1)], "stored samples at once"


def test_the_first_signal_ends_after_what_is_in_flight() -> None:
    engine = ToyEngine(lambda body: os.kill(os.getpid(), signal.SIGINT) if len(engine.seen) == 2 else None)
    conn = connection(engine)
    sink = RecordList()
    runner = Runner(ready(conn, "gsm8k_gen"), Pool([conn]), sink, RunPolicy(1))
    ended = asyncio.run(run_until_signal(runner))
    assert ended.interrupted
    assert ended.reason == "stopped by SIGINT"
    assert 2 <= len(sink.samples) < 24
    assert sink.flushed == 1


def test_the_second_signal_ends_at_once_and_keeps_what_is_stored() -> None:
    class Hanging(ToyEngine):
        async def send(self, request: Any) -> Any:
            if len(self.seen) == 1:
                os.kill(os.getpid(), signal.SIGTERM)
                await asyncio.sleep(0)
                os.kill(os.getpid(), signal.SIGTERM)
                await asyncio.Event().wait()
            return await super().send(request)

    conn = connection(Hanging())
    sink = RecordList()
    runner = Runner(ready(conn, "gsm8k_gen"), Pool([conn]), sink, RunPolicy(1))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run_until_signal(runner))
    assert len(sink.samples) == 1
    assert sink.flushed == 1


def test_a_row_that_makes_no_item_is_a_failed_sample(tmp_path: Path) -> None:
    row = '{"ind": %d, "activity_label": "a", "ctx": "c", "endings": ["%s", "y"], "label": "0"}\n'
    (tmp_path / "hellaswag.validation.jsonl").write_text(row % (1, "x") + row % (2, "[step]"))
    conn = connection(ToyEngine())
    ended, sink = run(conn, ready(conn, "hellaswag_ppl", data=str(tmp_path)))
    assert (ended.ran, ended.failed) == (2, 1)
    assert "hellaswag.validation.jsonl:2" in str(next(s for s in sink.samples if s.status == "failed").reason)
