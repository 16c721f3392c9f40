from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eval.toy import ToyEngine, connection, fault, stored
from logproof.errors import StoreError, UsageError
from logproof.eval.plan.method import TaskMethod
from logproof.eval.report import report
from logproof.eval.report.rescore import Rescoring, rescore_sample, rescored
from logproof.ir.message import text_message
from logproof.ir.request import Input
from logproof.store.records import ScoreRecord
from logproof.store.run_store import RunStore

ALL = ("arc_easy_ppl", "hellaswag_ppl", "mmlu_clp", "gsm8k_gen")


def rescore(path: Path, extract: str | None = None) -> tuple[list[ScoreRecord], report.Report]:
    rescoring = Rescoring(extract)
    scorer = rescoring.scorer("again")
    with RunStore.amend(path) as store:
        store.put_scorer(scorer)
        records = list(rescored(store, rescoring, scorer))
        for record in records:
            store.put_score(record)
        store.flush()
        return records, report.build(store, scorer.digest)


@pytest.mark.parametrize(("dialect", "uncond"), [("vllm_native", True), ("openai_completions", False)])
def test_the_same_rules_give_the_same_scores_without_network(
    tmp_path: Path, dialect: str, uncond: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = stored(tmp_path / "run", connection(ToyEngine(), dialect), *ALL, limit="3", uncond=uncond).report
    monkeypatch.setattr(socket, "socket", None)
    records, again = rescore(tmp_path / "run")
    assert len(records) == 12
    assert again.tasks == first.tasks
    with RunStore.read(tmp_path / "run") as store:
        originals = {s.key: s for s in store.samples()}
        assert report.build(store).tasks == first.tasks
    for record in records:
        original: Any = originals[record.sample_key]
        assert msgspec.to_builtins(record.output) == original.output


def test_a_custom_extractor_adds_its_metric(tmp_path: Path) -> None:
    engine = ToyEngine(generate=lambda prompt: " I say 3 and then <15> or 9")
    stored(tmp_path / "run", connection(engine), "gsm8k_gen", "mmlu_clp", limit="1", shots=0)
    records, made = rescore(tmp_path / "run", r"<(\d+)>")
    scores = next(r for r in records if "exact_custom" in r.scores)
    assert scores.scores["exact_custom"] == 1.0
    assert scores.scores["exact_flexible"] == 0.0
    assert scores.output["extracted"]["custom"] == "15"
    assert made.tasks[0].metrics["exact_custom"].value == 1.0
    plain, _ = rescore(tmp_path / "run", r"\d+")
    assert next(r for r in plain if "exact_custom" in r.scores).output["extracted"]["custom"] == "9"
    none, _ = rescore(tmp_path / "run", "zzz")
    assert next(r for r in none if "exact_custom" in r.scores).scores["exact_custom"] == 0.0


def test_scorers_are_told_apart_by_what_they_do() -> None:
    assert Rescoring().scorer("x").digest != Rescoring("a").scorer("x").digest
    with pytest.raises(UsageError, match="no regular expression"):
        Rescoring("(").scorer("x")


def test_failed_samples_stay_failed_and_are_not_rescored(tmp_path: Path) -> None:
    engine = ToyEngine(lambda body: fault() if "12 trays" in body["prompt"] else None)
    stored(tmp_path / "run", connection(engine), "gsm8k_gen", limit="4", shots=0)
    records, made = rescore(tmp_path / "run")
    assert len(records) == 3
    assert made.tasks[0].failed == 1


def damaged(tmp_path: Path, task: str, **changes: Any) -> None:
    stored(tmp_path / "run", connection(ToyEngine()), task, limit="1", shots=0)
    with RunStore.read(tmp_path / "run") as store:
        sample = next(store.samples())
        calls = list(store.calls(sample.key))
        method = msgspec.convert(store.provenance.config["ways"][task], TaskMethod)
    if changes.pop("calls", None) is not None:
        calls = []
    rescore_sample(msgspec.structs.replace(sample, **changes), calls, method, Rescoring())


@pytest.mark.parametrize(
    ("task", "changes"),
    [
        ("gsm8k_gen", {"calls": ()}),
        ("arc_easy_ppl", {"output": {}}),
        ("arc_easy_ppl", {"output": None}),
        ("arc_easy_ppl", {"gold": "A"}),
        ("mmlu_clp", {"output": {}}),
    ],
)
def test_what_rescoring_needs_and_lacks_is_told(tmp_path: Path, task: str, changes: dict[str, Any]) -> None:
    with pytest.raises(StoreError):
        damaged(tmp_path, task, **changes)


def test_a_sample_that_cannot_be_rescored_is_failed_in_the_new_scores(tmp_path: Path) -> None:
    stored(tmp_path / "run", connection(ToyEngine()), "arc_easy_ppl", limit="1")
    rescoring = Rescoring()
    with RunStore.read(tmp_path / "run") as store:
        samples = [msgspec.structs.replace(s, output={}) for s in store.samples()]
        store.samples = lambda: iter(samples)
        records = list(rescored(store, rescoring, rescoring.scorer("x")))
    assert [r.status for r in records] == ["failed"]
    assert "StoreError" in str(records[0].reason)


def test_chat_prompts_are_read_too(tmp_path: Path) -> None:
    stored(tmp_path / "run", connection(ToyEngine()), "gsm8k_gen", limit="1", shots=0)
    with RunStore.read(tmp_path / "run") as store:
        sample = next(store.samples())
        [call] = store.calls(sample.key)
        request: Any = call.request
        chat = {**request, "input": msgspec.to_builtins(Input(messages=(text_message("user", "Q"),)))}
        outcome = rescore_sample(
            sample, [msgspec.structs.replace(call, request=chat)], TaskMethod("text", {}, "chat"), Rescoring()
        )
    assert outcome.scores == sample.scores
