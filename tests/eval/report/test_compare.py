from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from eval.report.run_pairs import run_pair
from eval.toy import ToyEngine, connection, fault, stored
from logproof.errors import StoreError
from logproof.eval.report.compare import Channel, compare, compare_tokens, shown_prompt
from logproof.ir.message import text_message
from logproof.ir.request import Input, Request
from logproof.ir.response import Meaning, Tokens
from logproof.store.records import RunProvenance, SampleRecord
from logproof.store.run_store import RunStore


def tokens(values: list[float], ids: list[int] | None = None, texts: Any = None, meaning: Meaning = "raw") -> Tokens:
    return Tokens(np.array(values), meaning, np.array(ids) if ids else None, texts=texts)


def compared(a: Tokens, b: Tokens) -> tuple[Channel, str | None]:
    channel = Channel()
    return channel, compare_tokens(channel, a, b)


def test_equal_channels() -> None:
    one = tokens([math.nan, -1.0, -math.inf], [1, 2, 3], ("a", "b", None))
    channel, said = compared(one, one)
    assert said is None
    assert channel == Channel(tokens=3, max_difference=0.0, unknown_texts=1, spread=channel.spread)
    assert channel.spread.counts[0] == channel.spread.positions == 2
    assert channel.within(0.0)


@pytest.mark.parametrize(
    ("a", "b", "said", "want"),
    [
        (tokens([-1.0, -2.0]), tokens([-1.0, -2.5]), "position 1: logprobs -2.0", {"max_difference": 0.5}),
        (tokens([-1.0], [5]), tokens([-1.0], [6]), "position 0: ids 5 and 6", {"differing_ids": 1}),
        (tokens([-1.0], None, ("a",)), tokens([-1.0], None, ("b",)), "texts 'a' and 'b'", {"differing_texts": 1}),
        (tokens([-1.0]), tokens([-math.inf]), "logprobs -1.0", {"unlike": 1, "max_difference": None}),
        (tokens([math.nan]), tokens([-1.0]), "logprobs nan", {"unlike": 1}),
        (tokens([-1.0]), tokens([-1.0, -2.0]), "1 and 2 tokens", {"unlike": 1, "tokens": 0}),
        (tokens([-1.0]), tokens([-1.0], meaning="processed"), "raw and processed", {"unlike": 1, "tokens": 0}),
        (tokens([-1.0]), tokens([-3.0], meaning="unknown"), None, {"unknown_meaning": 1, "max_difference": None}),
        (tokens([-1.0], [5]), tokens([-1.0]), None, {"unknown_ids": 1}),
    ],
)
def test_differences_are_counted_and_told(a: Tokens, b: Tokens, said: str | None, want: dict[str, float]) -> None:
    channel, detail = compared(a, b)
    assert (detail is None) if said is None else (detail is not None and said in detail)
    for name, value in want.items():
        assert getattr(channel, name) == value
    assert channel.within(0.0) == (said is None)


def test_the_same_text_from_other_ids_is_a_difference(tmp_path: Path) -> None:
    engine = ToyEngine()

    def behave(body: dict[str, Any]) -> dict[str, Any]:
        reply = engine.answer(body)
        reply["choices"][0]["token_ids"][0] += 1
        return reply

    engine.behave = behave
    _, _, pair = run_pair(tmp_path, connection(ToyEngine()), connection(engine, "openai_completions"), "gsm8k_gen")
    assert pair.sampled.differing_ids == 4
    assert pair.first is not None
    assert "other token ids" in pair.first.detail


def test_runs_of_unlike_rows_are_missing_samples(tmp_path: Path) -> None:
    conn = connection(ToyEngine())
    stored(tmp_path / "a", conn, "gsm8k_gen", limit="2", shots=0)
    stored(tmp_path / "b", conn, "gsm8k_gen", limit="3", shots=0)
    with RunStore.read(tmp_path / "a") as one, RunStore.read(tmp_path / "b") as two:
        assert compare(one, two).missing == compare(two, one).missing == 1


def test_label_differences(tmp_path: Path) -> None:
    engine = ToyEngine()

    def behave(body: dict[str, Any]) -> dict[str, Any]:
        reply = engine.answer(body)
        for position in reply["choices"][0]["logprobs"]["top_logprobs"]:
            position[" A"] -= 0.5
        return reply

    engine.behave = behave
    engine.generate = lambda prompt: " C"
    _, _, pair = run_pair(tmp_path, connection(ToyEngine()), connection(engine, "openai_completions"), "mmlu_clp")
    assert pair.labels.max_difference == pytest.approx(0.5)
    assert pair.first is not None
    assert "label ' A'" in pair.first.detail


def label_store(path: Path, *labels: dict[str, float | None] | None) -> RunStore:
    store = RunStore.create(path, RunProvenance(config={}, model={}, tasks={"t": "x"}))
    for i, found in enumerate(labels):
        output = None if found is None else {"labels": found}
        key = f"{i:064x}"
        store.put_sample(SampleRecord(key=key, task="t", row_id=str(i), index=i, status="ok", output=output))
    store.flush()
    return store


def test_labels_that_cannot_be_compared(tmp_path: Path) -> None:
    rows: list[dict[str, float | None] | None] = [{" A": -1.0, " B": None}, {" A": -1.0}, {" A": -1.0}, None]
    other: list[dict[str, float | None] | None] = [{" A": None, " B": None}, {" B": -1.0}, None, None]
    with label_store(tmp_path / "a", *rows) as one, label_store(tmp_path / "b", *other) as two:
        found = compare(one, two)
    assert (found.labels.unlike, found.labels.max_difference, found.labels.tokens) == (3, None, 2)


def edited(store: RunStore, **changes: Any) -> None:
    """Change every stored reply on its way out."""
    calls = store.calls

    def read(key: str) -> Any:
        for call in calls(key):
            yield msgspec.structs.replace(call, response={**call.response, **changes})

    store.calls = read


def test_a_prompt_channel_of_one_run_only(tmp_path: Path) -> None:
    for name in ("a", "b"):
        stored(tmp_path / name, connection(ToyEngine()), "arc_easy_ppl", limit="1", shots=0)
    with RunStore.amend(tmp_path / "a") as one, RunStore.amend(tmp_path / "b") as two:
        edited(two, prompt=None)
        found = compare(one, two)
    assert found.input.unlike == 4
    assert found.first is not None
    assert found.first.detail == "a prompt channel is absent"


def test_texts_alone_are_compared_where_a_wire_has_no_logprobs(tmp_path: Path) -> None:
    for name in ("a", "b"):
        stored(tmp_path / name, connection(ToyEngine()), "gsm8k_gen", limit="1", shots=0)
    with RunStore.amend(tmp_path / "a") as one, RunStore.amend(tmp_path / "b") as two:
        edited(two, choices=[{"text": " The answer is 7.\n#### 7", "finish": {"reason": "stop", "raw": None}}])
        found = compare(one, two)
    assert (found.sampled.tokens, found.first) == (0, None)


def test_samples_that_failed_in_both_runs_are_not_missing(tmp_path: Path) -> None:
    for name in ("a", "b"):
        stored(tmp_path / name, connection(ToyEngine(lambda body: fault())), "gsm8k_gen", limit="1", shots=0)
    with RunStore.read(tmp_path / "a") as one, RunStore.read(tmp_path / "b") as two:
        found = compare(one, two)
    assert (found.missing, found.samples) == (0, 0)


def test_a_store_without_its_calls_is_damaged(tmp_path: Path) -> None:
    conn = connection(ToyEngine())
    for name in ("a", "b"):
        stored(tmp_path / name, conn, "gsm8k_gen", limit="1", shots=0)
    with RunStore.read(tmp_path / "a") as one, RunStore.read(tmp_path / "b") as two:
        broken = msgspec.structs.replace
        calls = two.calls
        two.calls = lambda key: (broken(c, part="other") for c in calls(key))
        with pytest.raises(StoreError, match="lacks its call 'text'"):
            compare(one, two)


def test_prompts_are_shown_whatever_their_form() -> None:
    assert shown_prompt(Request("m", Input(text="Q"))) == "Q"
    assert shown_prompt(Request("m", Input(token_ids=(1, 2)))) == "1 2"
    assert shown_prompt(Request("m", Input(messages=(text_message("user", "Q"), text_message("user", "R"))))) == "Q\nR"
