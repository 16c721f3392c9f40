"""The four tasks on a real engine: both wires, resume, label scores, and a prompt long enough for the prefix cache."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from logproof.client.connect import Options, connect
from logproof.client.pool import open_pool
from logproof.eval.report.compare import compare
from logproof.eval.report.parity import judge, run_scores
from logproof.eval.run.run import Order, RunResult, execute
from logproof.eval.run.runner import RunPolicy
from logproof.eval.score import stored_calls
from logproof.eval.tasks.task import Settings
from logproof.ir.request import Input, Request, Sampling, Scoring
from logproof.store.run_store import RunStore

TASKS = ("arc_easy_ppl", "hellaswag_ppl", "mmlu_clp", "gsm8k_gen")


def run(
    url: str, out: Path, dialect: str, *tasks: str, resume: bool = False, concurrency: int = 2, **more: Any
) -> RunResult:
    settings = Settings(**{"limit": "3", "max_tokens": 24, **more})

    async def work() -> RunResult:
        async with open_pool([url], Options(dialect=dialect, concurrency=concurrency)) as pool:
            order = Order(
                entries=[(t, settings) for t in tasks or TASKS], out=out, policy=RunPolicy(concurrency), resume=resume
            )
            return await execute(order, pool)

    return asyncio.run(work())


def test_both_wires_give_the_same_numbers(engine_url: str, tmp_path: Path) -> None:
    first = run(engine_url, tmp_path / "a", "vllm_native")
    second = run(engine_url, tmp_path / "b", "openai_completions", concurrency=4)
    with RunStore.read(tmp_path / "a") as one, RunStore.read(tmp_path / "b") as two:
        pair = compare(one, two)
    found = judge(run_scores(first.report), run_scores(second.report), pair, 0.0)
    assert found.reasons == ()
    assert pair.samples == 12
    assert pair.input.tokens > 500
    assert (pair.input.max_difference, pair.input.unknown_ids, pair.input.unknown_texts) == (0.0, 0, 0)
    assert {t.task: t.failed for t in first.report.tasks} == dict.fromkeys(TASKS, 0)


def test_a_resumed_run_sends_nothing_and_reports_the_same(engine_url: str, tmp_path: Path) -> None:
    first = run(engine_url, tmp_path / "a", "vllm_native", "mmlu_clp")
    again = run(engine_url, tmp_path / "a", "vllm_native", "mmlu_clp", resume=True)
    assert (again.ended.ran, again.ended.skipped) == (0, 3)
    assert again.report.tasks == first.report.tasks


def test_unconditional_scores_and_crossings(engine_url: str, tmp_path: Path) -> None:
    made = run(engine_url, tmp_path / "a", "vllm_native", "arc_easy_ppl", uncond=True, limit="2").report
    [arc] = made.tasks
    assert "acc_uncond" in arc.metrics
    assert arc.crossings == 0


def test_repeats_draw_different_texts_by_seed(engine_url: str, tmp_path: Path) -> None:
    run(engine_url, tmp_path / "a", "vllm_native", "gsm8k_gen", limit="1", shots=0, repeats=3, temperature=1.5)
    run(engine_url, tmp_path / "b", "vllm_native", "gsm8k_gen", limit="1", shots=0, repeats=3, temperature=1.5)
    texts = []
    for name in ("a", "b"):
        with RunStore.read(tmp_path / name) as store:
            texts.append({c.key: c.response["choices"][0]["text"] for c in store.calls()})
    assert texts[0] == texts[1]
    assert len(set(texts[0].values())) > 1


def test_labels_over_chat_are_those_of_the_templated_ids(engine_url: str, tmp_path: Path) -> None:
    """The label stands behind `Answer:` of the assistant's turn; the same ids sent to the native wire score alike."""
    run(engine_url, tmp_path / "a", "openai_chat", "mmlu_clp", limit="2", shots=0)
    with RunStore.read(tmp_path / "a") as store:
        assert store.provenance.config["ways"]["mmlu_clp"]["form"] == "chat"
        calls = [stored_calls.response_of(call) for call in store.calls()]
    assert len(calls) == 2

    async def native(ids: tuple[int, ...], labels: tuple[int, ...]) -> Any:
        async with connect(engine_url, Options(dialect="vllm_native", texts=False)) as connection:
            sampling, scoring = Sampling(max_tokens=1), Scoring(label_ids=labels)
            request = Request(connection.model, Input(token_ids=ids), sampling, scoring)
            return (await connection.client.call(request)).response.choices[0].labels

    for reply in calls:
        mine = reply.choices[0].labels
        assert mine is not None
        assert reply.prompt_ids is not None
        theirs = asyncio.run(native(tuple(reply.prompt_ids.tolist()), tuple(mine.ids.tolist())))
        assert abs(mine.logprobs[0] - theirs.logprobs[0]).max() < 1e-4


def test_draws_without_seeds_run_and_say_so(sglang_url: str, tmp_path: Path) -> None:
    """SGLang heeds no seed here."""
    drawn = {"limit": "1", "shots": 0, "temperature": 0.8, "max_tokens": 4}
    made = run(sglang_url, tmp_path / "a", "sglang_native", "gsm8k_gen", **drawn).report
    assert [t.failed for t in made.tasks] == [0]
    assert made.notes == ("gsm8k_gen: drawn without seeds, as this wire takes none: another run draws other texts",)


@pytest.mark.parametrize("dialect", ["vllm_native", "openai_completions"])
def test_a_repeated_long_prompt_keeps_every_position(engine_url: str, dialect: str) -> None:
    text = "The river runs past the old mill and under the stone bridge. " * 24

    async def work() -> list[Any]:
        async with connect(engine_url, Options(dialect=dialect)) as connection:
            request = Request(connection.model, Input(text=text), Sampling(max_tokens=1), Scoring(prompt=0))
            return [(await connection.client.call(request)).response for _ in range(3)]

    replies = asyncio.run(work())
    first = replies[0].prompt
    assert len(first) > 256
    for reply in replies:
        assert len(reply.prompt) == len(first) == reply.usage.prompt
        assert reply.prompt.logprobs[1:].tolist() == first.logprobs[1:].tolist()
        assert reply.prompt.texts == first.texts
