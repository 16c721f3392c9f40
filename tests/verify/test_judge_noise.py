"""Verdicts at a calibrated noise: honest pairs, frauds, and what an uncalibrated policy must not say."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import numpy as np
import pytest

from logproof.verify.artifact.columns import Columns, make_columns
from logproof.verify.checks import recorded, sampling
from logproof.verify.policy import Holdout, Policy, Rates
from logproof.verify.stats import conformal, distance, plausibility, redraw
from logproof.verify.stats.sampler import Sampler
from logproof.verify.stats.sampler_profiles import profile
from verify.builders import (
    PLAIN,
    VOCAB,
    artifact,
    change,
    draw,
    finding,
    judged,
    logits,
    noisy,
    policy,
    record,
    replayed,
)

NOW = datetime(2026, 6, 1, tzinfo=UTC)
replace = msgspec.structs.replace
SIZE = 0.02
"""Noise of the logits of honest pairs, nats."""


def honest_pair(i: int, sampler: Sampler, n: int = 40) -> tuple[Columns, Columns]:
    z = logits(n, 1000 + i)
    mine = noisy(z, 5000 + i, SIZE)
    ids = draw(mine, sampler, i)
    return record(mine, ids, 20), record(z, ids, 40)


@pytest.fixture(scope="module")
def calibrated() -> Policy:
    pairs = [honest_pair(i, PLAIN) for i in range(160)]
    matched = [distance.pair(a, b) for a, b in pairs]
    sigma = distance.fit_sigma(matched[:40])
    bins, margins = np.zeros(redraw.BINS, np.int64), []
    for i, (_, theirs) in enumerate(pairs):
        again = redraw.redraw(theirs, PLAIN, profile("v1-cpu-splitmix"), i, 3, vocab_size=VOCAB)
        bins += np.bincount(redraw.margin_bins(again), minlength=redraw.BINS)
        margins.append(again.capped())
    z = [plausibility.surprise(plausibility.outcomes(b, PLAIN, VOCAB)).z for _, b in pairs[40:]]
    scores = {"tz": tuple(distance.tz(p, sigma) for p in matched[40:]), "surprise": tuple(z), "margin": tuple(margins)}
    gaps = int(
        sum((plausibility.greedy_gaps(b) > 0.125).sum() for _, b in [honest_pair(i, Sampler(0.0)) for i in range(40)])
    )
    rates = Rates(margins=tuple(bins.tolist()), tokens=6400, greedy_beyond=gaps, greedy_tokens=1600)
    return policy(
        exact=None,
        level=0.05,
        sigma=sigma,
        scores={"1": scores},
        rates=rates,
        holdout={"1": Holdout(sequences=200, alarms=1)},
    )


def test_noisy_honest_pairs_are_valid_at_the_stated_rate(calibrated: Policy) -> None:
    alarms, levels = 0, []
    for i in range(60):
        own, theirs = honest_pair(500 + i, PLAIN)
        got = judged(artifact(own, seed=500 + i), replayed(theirs), calibrated, NOW)
        alarms += got.status == "invalid"
        levels.append(got.level)
    assert conformal.clopper_pearson(alarms, 60)[0] <= 0.05
    assert levels.count("replayed") > 45
    assert got.context.false_positive_measured == (1, 200)


def test_noisy_frauds_are_found(calibrated: Policy) -> None:
    own, theirs = honest_pair(700, PLAIN)
    z = logits(40, 1700)
    coarse = noisy(z, 1, 0.3)
    ids = draw(coarse, PLAIN, 700)
    weights = judged(artifact(record(coarse, ids, 20), seed=700), replayed(record(z, ids, 40)), calibrated, NOW)
    assert finding(weights, "S1").outcome == "fail"
    foreign = draw(noisy(z, 2, 1.5), PLAIN, 700)
    honest = noisy(z, 5700, SIZE)
    writer = judged(artifact(record(honest, foreign, 20), seed=700), replayed(record(z, foreign, 40)), calibrated, NOW)
    assert finding(writer, "S1").outcome == "pass"
    assert finding(writer, "S2").outcome == "fail"
    assert len(own) == len(theirs)


def test_noisy_greedy_pairs(calibrated: Policy) -> None:
    greedy = Sampler(0.0)
    own, theirs = honest_pair(800, greedy)
    assert judged(artifact(own, greedy), replayed(theirs), calibrated, NOW).status == "valid"
    z = logits(40, 1800)
    order = np.argsort(-z, axis=1)
    second = [int(t) for t in order[:, 3]]
    cheat = judged(artifact(record(z, second, 20), greedy), replayed(record(z, second, 40)), calibrated, NOW)
    assert finding(cheat, "S2g").outcome == "fail"
    no_rates = replace(calibrated, rates=Rates())
    got = judged(artifact(own, greedy), replayed(theirs), no_rates, NOW)
    assert finding(got, "S2g").reason == "profile_uncalibrated"


def test_uncalibrated_lengths_are_inconclusive(calibrated: Policy) -> None:
    own, theirs = honest_pair(900, PLAIN)
    bare = replace(calibrated, scores={}, rates=Rates())
    got = judged(artifact(own, seed=900), replayed(theirs), bare, NOW)
    assert got.status == "inconclusive"
    assert finding(got, "S1").reason == finding(got, "S2").reason == "profile_uncalibrated"
    assert "59 are needed" in finding(got, "S1").detail


def test_too_good_is_a_note(calibrated: Policy) -> None:
    own, _ = honest_pair(900, PLAIN)
    got = judged(artifact(own, seed=900), replayed(own), calibrated, NOW)
    assert (finding(got, "N1").outcome, finding(got, "N1").reason) == ("note", "too_good")


def test_nothing_to_compare(calibrated: Policy) -> None:
    own, theirs = honest_pair(900, PLAIN)
    empty = make_columns(own.sampled_ids, [None] * 40, [[]] * 40, [[]] * 40)
    for used in (calibrated, policy()):
        hollow = artifact(empty, k=0, seed=900)
        got = judged(
            hollow,
            replayed(replace(theirs, ids=empty.ids, logprobs=empty.logprobs, sampled_logprobs=empty.sampled_logprobs)),
            replace(used, k=0),
            NOW,
        )
        assert finding(got, "S1").reason == "no_logprobs"


def test_request_evidence_adds_up(calibrated: Policy) -> None:
    own, theirs = honest_pair(900, PLAIN)
    honest = judged(artifact(own, seed=900), replayed(theirs), calibrated, NOW)
    z = logits(40, 1900)
    foreign = draw(noisy(z, 2, 1.5), PLAIN, 900)
    cheat = judged(artifact(record(z, foreign, 20), seed=900), replayed(record(z, foreign, 40)), calibrated, NOW)
    assert honest.log_e < 2.0 < cheat.log_e
    bare = change(artifact(own), positions=None, logprobs=None)
    assert recorded.check(bare).case is None


def test_a_third_of_the_level_is_not_lost_where_there_is_no_seed(calibrated: Policy) -> None:
    own, theirs = honest_pair(900, PLAIN)
    asked: list[float] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sampling, "_sampling_failed", lambda *args: asked.append(args[-1]))
        for seed in (900, None):
            judged(artifact(own, seed=seed), replayed(theirs), calibrated, NOW)
    assert asked == pytest.approx([0.05 / 18, 0.05 * 2 / 9])


def test_three_tokens_are_too_few_for_a_distance(calibrated: Policy) -> None:
    own, theirs = honest_pair(900, PLAIN)
    got = judged(artifact(own.head(3), seed=900), replayed(theirs.head(3)), calibrated, NOW)
    assert (got.status, finding(got, "S1").reason) == ("inconclusive", "too_few_tokens")
    got = judged(artifact(own.head(3), seed=900), replayed(own.head(3)), policy(), NOW)
    assert finding(got, "S1").outcome == "pass"


def test_an_honest_token_at_the_edge_of_top_k_is_a_margin_and_not_impossible(calibrated: Policy) -> None:
    """By the verifier's logprobs token 2 is third by a rounding; by the executor's it was second, and was drawn."""
    narrow, rows = Sampler(1.0, 2), [[0, 1, 2, 3]] * 40
    slack = calibrated.cut_slack(narrow)
    assert 0.0 == calibrated.cut_slack(Sampler(1.0, 2, 0.9)) < slack <= 0.5
    values = [np.array([-0.7, -1.6, -1.6 - slack, -5.0], np.float32).tolist()] * 40
    ids = draw(np.array(values)[:, :3], Sampler(1.0), 3)
    own = make_columns(ids, [values[0][t] for t in ids], rows, values)
    strict = redraw.redraw(own, narrow, profile("v1-cpu-splitmix"), 3, 3)
    assert strict.out.sum() == sum(t == 2 for t in ids) > 0
    near = redraw.redraw(own, narrow, profile("v1-cpu-splitmix"), 3, 3, slack=slack)
    assert not near.out.any()
    assert near.capped() <= near.tolerance
    told = judged(artifact(own, narrow, 3, k=4), replayed(own), replace(calibrated, k=4), NOW)
    assert finding(told, "S2").statistic["out"] == 0.0
    far = make_columns([3] * 40, [-5.0] * 40, rows, values)
    assert redraw.redraw(far, narrow, profile("v1-cpu-splitmix"), 3, 3, slack=slack).out.all()
