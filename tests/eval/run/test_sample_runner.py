from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eval.toy import ToyEngine, connection, fault, logprob, ready, run


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


def test_a_row_that_makes_no_item_is_a_failed_sample(tmp_path: Path) -> None:
    row = '{"ind": %d, "activity_label": "a", "ctx": "c", "endings": ["%s", "y"], "label": "0"}\n'
    (tmp_path / "hellaswag.validation.jsonl").write_text(row % (1, "x") + row % (2, "[step]"))
    conn = connection(ToyEngine())
    ended, sink = run(conn, ready(conn, "hellaswag_ppl", data=str(tmp_path)))
    assert (ended.ran, ended.failed) == (2, 1)
    assert "hellaswag.validation.jsonl:2" in str(next(s for s in sink.samples if s.status == "failed").reason)
