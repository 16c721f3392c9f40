from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from eval.report.run_pairs import run_pair
from eval.toy import ToyEngine, connection, fault
from logproof.eval.report.compare import Channel, Comparison
from logproof.eval.report.parity import RunScores, judge


def test_two_wires_of_one_engine_agree(tmp_path: Path) -> None:
    a, b, pair = run_pair(tmp_path, connection(ToyEngine()), connection(ToyEngine(), "openai_completions"))
    found = judge(a, b, pair, 0.0)
    assert (found.verdict, found.exit_code, found.reasons) == ("agree", 0, ())
    assert (pair.samples, pair.calls, pair.missing, pair.first) == (12, 24, 0, None)
    assert pair.input.tokens > 100
    assert pair.labels.tokens == 16
    assert pair.sampled.unknown_meaning == pair.sampled.tokens > 0
    msgspec.json.encode(found)


def shifted(engine: ToyEngine, by: float) -> ToyEngine:
    def behave(body: dict[str, Any]) -> dict[str, Any]:
        reply = engine.answer(body)
        lists = reply["choices"][0].get("logprobs")
        if body.get("echo"):
            lists["token_logprobs"][-3] -= by
        return reply

    engine.behave = behave
    return engine


def test_a_shift_of_one_token_is_found_with_its_prompt(tmp_path: Path) -> None:
    other = connection(shifted(ToyEngine(), 0.25), "openai_completions")
    a, b, pair = run_pair(tmp_path, connection(ToyEngine()), other, "arc_easy_ppl")
    found = judge(a, b, pair, 0.0)
    assert (found.verdict, found.exit_code) == ("differ", 1)
    assert pair.input.max_difference == pytest.approx(0.25)
    assert pair.first is not None
    assert (pair.first.task, pair.first.part) == ("arc_easy_ppl", "option 0")
    assert "Answer:" in pair.first.prompt
    assert judge(a, a, pair, 0.3).verdict == "agree"


def test_other_texts_and_failures_break_parity(tmp_path: Path) -> None:
    engine = ToyEngine(generate=lambda prompt: " The answer is 8.\n#### 8")
    engine.behave = lambda body: fault() if "12 trays" in body["prompt"] else None
    a, b, pair = run_pair(tmp_path, connection(ToyEngine()), connection(engine, "openai_completions"), "gsm8k_gen")
    found = judge(a, b, pair, 0.0)
    assert found.verdict == "differ"
    assert pair.missing == 1
    assert pair.sampled.differing_texts == 3
    assert pair.first is not None
    assert pair.first.detail == "texts part at character 15: '7.\\n#### 7' and '8.\\n#### 8'"
    assert any("1 failed samples of gsm8k_gen over openai_completions" in r for r in found.reasons)
    assert any("scored in one run only" in r for r in found.reasons)


def pair_of(**channel: Any) -> Comparison:
    return Comparison(Channel(**{"tokens": 9, **channel}), Channel(), Channel(), samples=3)


SIDE = RunScores("a", {"t": {"acc": 0.5}}, {"t": 0})


def test_a_control_with_as_much_noise_makes_it_noise() -> None:
    noisy = pair_of(max_difference=0.01)
    assert judge(SIDE, SIDE, noisy, 0.0).verdict == "differ"
    assert judge(SIDE, SIDE, noisy, 0.0, SIDE, pair_of(max_difference=0.02)).verdict == "noise"
    assert judge(SIDE, SIDE, noisy, 0.0, SIDE, pair_of(max_difference=0.001)).verdict == "differ"
    assert judge(SIDE, SIDE, noisy, 0.0, SIDE, pair_of(max_difference=0.02)).exit_code == 2


def test_noise_never_excuses_other_kinds_of_difference() -> None:
    control = pair_of(max_difference=9.0)
    for broken in (pair_of(unlike=1), pair_of(differing_ids=1), pair_of(differing_texts=1)):
        assert judge(SIDE, SIDE, broken, 0.0, SIDE, control).verdict == "differ"
    flips = pair_of(differing_ids=2, max_difference=1.0)
    assert judge(SIDE, SIDE, pair_of(differing_ids=1), 0.0, SIDE, flips).verdict == "noise"
    failed = RunScores("b", SIDE.metrics, {"t": 1})
    assert judge(SIDE, failed, pair_of(max_difference=0.01), 0.0, SIDE, control).verdict == "differ"
    other = RunScores("b", {"t": {"acc": 0.75}}, {"t": 0})
    assert judge(SIDE, other, pair_of(), 0.0, SIDE, control).verdict == "differ"
    assert judge(SIDE, other, pair_of(), 0.0, other, control).verdict == "noise"


def test_no_common_sample_is_no_agreement() -> None:
    empty = Comparison(Channel(), Channel(), Channel())
    assert judge(SIDE, SIDE, empty, 0.0).reasons == ("no sample was scored in both runs: nothing is compared",)


def test_scores_of_one_side_only_are_unequal() -> None:
    other = RunScores("b", {"t": {"acc": 0.5, "acc_char": 0.1}}, {"t": 0})
    assert judge(SIDE, other, pair_of(), 0.0).reasons == ("t acc_char: None and 0.1",)
    assert judge(SIDE, RunScores("b", {}, {}), pair_of(), 0.0).verdict == "differ"


def test_decoded_channels_have_their_own_limit() -> None:
    pair = Comparison(
        Channel(tokens=1),
        Channel(tokens=1, max_difference=1e-5),
        Channel(tokens=1),
        samples=1,
    )
    assert judge(SIDE, SIDE, pair, 0.0).verdict == "agree"
    pair.labels.max_difference = 1e-3
    assert judge(SIDE, SIDE, pair, 0.0).verdict == "differ"
