"""What the scoring bench claims of its rounds: paired ratios, held against the aims."""

from __future__ import annotations

import pytest
import scoring


def taken(**changed: list[float]) -> scoring.Rounds:
    """Three rounds of every figure that is claimed, 1 ms each but for what is changed."""
    keys = {key for _, pair, _ in scoring.AIMS for key in pair}
    return {key: [1.0] * 3 for key in keys} | {key.replace("_", "/"): value for key, value in changed.items()}


def test_a_ratio_is_of_figures_of_one_round():
    rounds = {"a": [1.0, 8.0, 3.0], "b": [1.0, 4.0, 1.0]}
    assert scoring.ratio(rounds, "a", "b") == 2.0  # of the medians it would be 3
    with pytest.raises(ValueError, match="shorter"):
        scoring.ratio({"a": [1.0, 2.0], "b": [1.0]}, "a", "b")


def test_each_claim_is_met_up_to_its_aim():
    assert all(met for *_, met in scoring.claims(taken()))
    missed = [name for name, *_, met in scoring.claims(taken(wide_logproof_32=[1.5] * 3)) if not met]
    assert missed == ["1.2 MB reply at 32: CPU, logproof / bare aiohttp"]


@pytest.mark.parametrize(("cpu", "met"), [(10.0, True), (9.9, False)])
def test_lm_eval_is_claimed_only_where_it_was_measured(cpu: float, met: bool):
    found = scoring.claims(taken() | {"score/lm-eval/32": [cpu] * 3})
    assert found[-1] == ("scoring at 32: CPU, lm-eval / logproof", cpu, "at least 10", met)
    assert len(found) == len(scoring.claims(taken())) + 1


def test_every_client_has_samples_where_the_claims_need_them():
    for _, pair, _ in scoring.AIMS:
        for key in pair:
            kind, name, concurrency = key.split("/")
            assert scoring.samples(name, kind, int(concurrency)) > 0
    assert scoring.samples("lm-eval", "score", 32) == 64
    assert scoring.samples("lm-eval", "wide", 32) == 0
