"""`parity` as a user types it, against the toy engine behind real HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eval.toy import ToyEngine, serving
from logproof.cli.evaluate.parity import print_parity
from logproof.cli.main import run
from logproof.eval.report.compare import Channel, Comparison
from logproof.eval.report.parity import RunScores, judge
from logproof.eval.report.spread import EDGES, Spread
from logproof.store.run_store import RunStore


def test_both_dialects_of_a_parity_check_are_checked_before_the_first_runs(
    url: str, engine: ToyEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["parity", "vllm_native", "openai_completion", "gsm8k_gen", "-m", url, "--out", "p"]) == 3
    assert "openai_completions" in capsys.readouterr().err
    assert engine.seen == []


def test_a_task_that_the_second_dialect_cannot_do_stops_a_parity_check_before_the_first_runs(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["parity", "vllm_native", "anthropic_messages", "arc_easy_ppl", "-m", url, "--limit", "2", "--out", "p"]
    assert run(args) == 3
    assert "anthropic_messages cannot give input_scoring" in capsys.readouterr().err
    assert not (tmp_path / "p").exists()


def test_parity_of_two_wires(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = ["arc_easy_ppl", "mmlu_clp", "gsm8k_gen"]
    args = ["parity", "vllm_native", "openai_completions", *tasks, "-m", url, "--limit", "2", "--shots", "0"]
    assert run([*args, "--control", "--out", "p"]) == 0
    shown = capsys.readouterr().out
    assert "they agree (tolerance 0 nat)" in shown
    assert "A, control" in shown
    found = json.loads((tmp_path / "p" / "parity.json").read_text())
    assert found["verdict"] == "agree"
    assert found["pair"]["input"]["differing_texts"] == 0
    assert found["pair"]["input"]["max_difference"] == 0.0
    assert found["pair"]["sampled"]["max_difference"] is None, "this wire does not say what its logprobs mean"
    alone = found["pair"]["sampled"]["unknown_meaning"]
    assert f"(tolerance 0 nat); not compared: {alone} sampled logprobs, whose meaning a wire does not say\n" in shown
    assert run([*args, "--out", "q", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["noise"] is None


def test_parity_of_two_engines_shows_the_noise_of_each(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["parity", "vllm_native", "vllm_native", "arc_easy_ppl", "-m", url, "--limit", "2", "--control"]
    with serving(ToyEngine()) as other:
        assert run([*args, "--model-b", other.url, "--stream-b", "--out", "p"]) == 0
    shown = capsys.readouterr().out
    assert "B, control" in shown
    assert "<= 0" in shown
    with RunStore.read(tmp_path / "p" / "control-b") as store:
        assert {c.request["schedule"]["stream"] for c in store.calls()} == {True}
    with RunStore.read(tmp_path / "p" / "a") as store:
        assert all("schedule" not in c.request for c in store.calls())
    assert json.loads((tmp_path / "p" / "parity.json").read_text())["noise_b"]["input"]["spread"]["total"] == 0


def test_parity_shows_the_first_difference(url: str, engine: ToyEngine, capsys: pytest.CaptureFixture[str]) -> None:
    def behave(body: dict[str, Any]) -> dict[str, Any] | None:
        if not body.get("echo"):
            return None
        reply = engine.answer(body)
        reply["choices"][0]["logprobs"]["token_logprobs"][-2] -= 0.5
        return reply

    engine.behave = behave
    args = ["parity", "vllm_native", "openai_completions", "arc_easy_ppl", "-m", url, "--limit", "2", "--out", "p"]
    assert run(args) == 1
    shown = capsys.readouterr().out
    assert "first difference: arc_easy_ppl own_test_01, option 0: position" in shown
    assert "- input: max |difference| 0.5 nat" in shown
    assert "they differ" in shown


def test_no_maximum_is_shown_where_nothing_was_compared(capsys: pytest.CaptureFixture[str]) -> None:
    a = RunScores("a", {"t": {"acc": 0.5}}, {"t": 0})
    pair = Comparison(
        Channel(9, max_difference=0.0, spread=Spread([9] + [0] * len(EDGES))),
        Channel(),
        Channel(225, unknown_meaning=225),
        samples=1,
    )
    print_parity(judge(a, a, pair, 0.0), False)
    rows = [[cell.strip() for cell in line.split("│")] for line in capsys.readouterr().out.splitlines()]
    most = {row[1]: row[5] for row in rows if row[0] == "A, B"}
    assert most == {"input": "0", "labels": "", "sampled": ""}


def test_noise_and_absent_scores_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    a = RunScores("a", {"t": {"acc": 0.5}}, {"t": 0})
    b = RunScores("b", {}, {})
    seen = Comparison(Channel(9, 0.01, unknown_ids=3, unknown_texts=2), Channel(), Channel(), samples=1)
    noise = msgspec.structs.replace(seen, input=Channel(9, 0.02))
    print_parity(judge(a, a, seen, 0.0, a, noise), False)
    assert "no more than the engine differs from itself" in capsys.readouterr().out
    print_parity(judge(a, b, seen, 0.0), False)
    shown = capsys.readouterr().out
    assert "none" in shown
    assert "0 (3 without)" in shown
    assert "0 (2 without)" in shown
    assert "not compared: 3 input ids, which a wire does not give, 2 input texts, which a wire does not give" in shown


def test_replies_of_text_alone_are_named_as_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    a = RunScores("a", {}, {})
    print_parity(
        judge(a, a, Comparison(Channel(), Channel(), Channel(texts_alone=4), samples=4), 0.0),
        False,
    )
    shown = capsys.readouterr().out
    assert "not compared: 4 sampled replies beyond their text: a wire gives no tokens" in shown
