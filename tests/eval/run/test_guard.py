from __future__ import annotations

import asyncio
from typing import Any

import pytest

from eval.toy import ToyEngine, connection, ready, run


def swapped(engine: ToyEngine, at: int) -> Any:
    """Answers request number `at` with the reply of the one before it."""

    def behave(body: dict[str, Any]) -> dict[str, Any] | None:
        return engine.answer(engine.seen[-2]) if len(engine.seen) == at else None

    return behave


@pytest.mark.parametrize("task", ["arc_easy_ppl", "mmlu_clp", "gsm8k_gen"])
def test_the_reply_of_another_request_never_becomes_a_number(task: str) -> None:
    engine = ToyEngine()
    engine.behave = swapped(engine, 6)
    conn = connection(engine)
    ended, sink = run(conn, ready(conn, task, limit="8", shots=0), concurrency=1)
    assert ended.failed == 1
    failed = [s for s in sink.samples if s.status == "failed"]
    assert "it answers another request" in str(failed[0].reason)


def test_swapped_options_of_one_row_are_told() -> None:
    engine = ToyEngine()

    def behave(body: dict[str, Any]) -> dict[str, Any] | None:
        first, second = engine.seen[0], engine.seen[1] if len(engine.seen) > 1 else None
        other = {"prompt": first["prompt"].replace(TEXTS[0], TEXTS[1])}
        if len(engine.seen) == 1:
            return engine.answer({**body, **other})
        return engine.answer({**body, "prompt": first["prompt"]}) if body is second else None

    conn = connection(engine)
    jobs = ready(conn, "arc_easy_ppl", limit="1", shots=0)
    item: Any = jobs[0].item(next(jobs[0].docs()))
    TEXTS[:] = item.continuations[:2]
    engine.behave = behave
    ended, _ = run(conn, jobs, concurrency=1)
    assert ended.failed == 1


TEXTS: list[str] = []


def test_a_reply_whose_prompt_differs_in_its_first_token_alone_is_told() -> None:
    engine = ToyEngine()

    def behave(body: dict[str, Any]) -> dict[str, Any] | None:
        rest = engine.tokenizer.pieces(body["prompt"])[1:]
        return engine.answer({**body, "prompt": "Zebra" + "".join(rest)}) if len(engine.seen) == 1 else None

    engine.behave = behave
    conn = connection(engine)
    ended, sink = run(conn, ready(conn, "arc_easy_ppl", limit="2", shots=0), concurrency=1)
    assert ended.failed == 1
    assert "it answers another request" in str(next(s.reason for s in sink.samples if s.status == "failed"))


def test_prompts_whose_texts_rebuild_them_cost_no_tokenizer_request() -> None:
    engine = ToyEngine()
    asked: list[str] = []
    original = engine.tokenizer.encode

    async def encode(text: str) -> tuple[int, ...]:
        asked.append(text)
        return await original(text)

    setattr(engine.tokenizer, "encode", encode)  # noqa: B010
    conn = connection(engine)
    jobs = ready(conn, "arc_easy_ppl", limit="2", shots=0)
    asked.clear()
    run(conn, jobs)
    assert len(asked) == 2, "only the context of each row"


def test_a_character_in_pieces_is_settled_by_the_tokenizer() -> None:
    engine = ToyEngine()

    def broken(body: dict[str, Any]) -> dict[str, Any]:
        reply = engine.answer(body)
        for entry in reply["choices"][0]["prompt_logprobs"][1:]:
            for value in entry.values():
                value["decoded_token"] = "\ufffd"
        return reply

    engine.behave = broken
    conn = connection(engine)
    ended, _ = run(conn, ready(conn, "arc_easy_ppl", limit="2", shots=0))
    assert ended.failed == 0
    assert asyncio.run(engine.tokenizer.encode("a"))
