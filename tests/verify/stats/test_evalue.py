from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from logproof.verify.stats import conformal, evalue
from verify.builders import quick


def test_calibrator() -> None:
    assert evalue.from_p(1.0) == pytest.approx(math.log(0.5))
    assert evalue.from_p(0.01) == pytest.approx(math.log(0.5 * 0.01**-0.5))
    assert evalue.from_p(0.0) == math.inf
    grid = (np.arange(100_000) + 0.5) / 100_000
    assert np.mean([math.exp(evalue.from_p(float(p))) for p in grid[::10]]) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(("p", "kappa"), [(-0.1, 0.5), (1.1, 0.5), (0.5, 0.0), (0.5, 1.0), (math.nan, 0.5)])
def test_calibrator_out_of_range(p: float, kappa: float) -> None:
    with pytest.raises(ValueError, match="out of range"):
        evalue.from_p(p, kappa)


def test_averages() -> None:
    assert evalue.average([math.log(2), math.log(4)]) == pytest.approx(math.log(3))
    with pytest.raises(ValueError, match="no e-values"):
        evalue.average([])


def slow_e_bh(es: list[float], level: float) -> list[bool]:
    m = len(es)
    best = 0
    for k in range(1, m + 1):
        if sum(e >= m / (level * k) for e in es) >= k:
            best = k
    line = m / (level * best) if best else math.inf
    return [e >= line for e in es]


@quick
@given(st.lists(st.floats(0.01, 1000), min_size=1, max_size=12, unique=True), st.sampled_from([0.01, 0.05, 0.2]))
def test_e_bh_equals_the_plain_form(es: list[float], level: float) -> None:
    assert evalue.e_bh([math.log(e) for e in es], level) == slow_e_bh(es, level)


def test_e_bh_by_hand() -> None:
    assert evalue.e_bh([math.log(90), math.log(45), 0.0], 0.05) == [True, True, False]
    assert evalue.e_bh([math.log(50), 0.0, 0.0], 0.05) == [False] * 3
    assert evalue.e_bh([], 0.05) == []


@quick
@given(st.lists(st.booleans(), min_size=1, max_size=30), st.sampled_from([0.01, 0.1, 0.5]))
def test_mismatch_bet_equals_the_plain_form(bits: list[bool], p0: float) -> None:
    wealth = 0.0
    for b in evalue.BETS:
        run = 1.0
        for m in bits:
            run *= 1 + min(b, 0.99 / p0) * (m - p0)
        wealth += run / len(evalue.BETS)
    assert evalue.mismatch_log_e(bits, p0)[-1] == pytest.approx(math.log(wealth))


def test_mismatch_bet_is_fair_and_grows() -> None:
    rng = np.random.default_rng(1)
    honest = [evalue.mismatch_log_e(rng.random(300) < 0.02, 0.02).max() for _ in range(150)]
    assert np.mean(np.array(honest) >= math.log(20)) <= 0.05
    fraud = [evalue.mismatch_log_e(rng.random(300) < 0.1, 0.02)[-1] for _ in range(50)]
    assert np.median(fraud) > math.log(100)
    assert evalue.mismatch_log_e([False, True], 0.0).tolist() == [0.0, math.inf]
    with pytest.raises(ValueError, match="p0"):
        evalue.mismatch_log_e([True], 1.0)


def test_margin_bet_is_fair_and_sees_sizes() -> None:
    null = evalue.null_shares([9000, 60, 40, 30, 20, 15, 10, 5, 1, 2])
    assert null.sum() == pytest.approx(1.0)
    rng = np.random.default_rng(2)
    honest = [evalue.bins_log_e(rng.choice(10, 300, p=null), null).max() for _ in range(150)]
    assert np.mean(np.array(honest) >= math.log(20)) <= 0.05
    other = null.copy()
    other[6:] += 0.02
    other /= other.sum()
    fraud = [evalue.bins_log_e(rng.choice(10, 300, p=other), null)[-1] for _ in range(50)]
    assert np.median(fraud) > math.log(100)
    for bad in ([0.9, 0.1, 0.0], [0.9, 0.1]):
        with pytest.raises(ValueError, match="share is 0, or there are fewer"):
            evalue.bins_log_e(np.array([0]), np.array(bad))


@quick
@given(st.lists(st.integers(0, 5000), min_size=3, max_size=12))
def test_a_margin_bet_gains_nothing_from_honest_tokens(counts: list[int]) -> None:
    null = evalue.null_shares([counts[0] + 1, *counts[1:]])
    gains = [math.exp(evalue.bins_log_e(np.array([b]), null)[0]) for b in range(len(null))]
    assert float(np.dot(null, gains)) == pytest.approx(1.0)


def test_three_foreign_tokens_in_sixty_settle_a_bet_that_small_margins_do_not() -> None:
    null = evalue.null_shares([70300, 330, 320, 380, 270, 100, 9, 3, 1, 75])
    assert evalue.bins_log_e(np.array([0] * 60 + [7, 8, 8]), null).max() > math.log(300)
    assert evalue.bins_log_e(np.array([0] * 60 + [1, 2, 3]), null).max() < math.log(10)


def test_smoothing_never_makes_the_first_bin_rarer_than_honest_rares() -> None:
    assert evalue.null_shares([10, 0, 0]).tolist() == pytest.approx([10 / 16, 3 / 16, 3 / 16])


@pytest.mark.parametrize(
    ("length", "index"), [(4, 0), (15, 0), (16, 1), (63, 1), (64, 2), (255, 2), (256, 3), (9999, 3)]
)
def test_buckets(length: int, index: int) -> None:
    assert conformal.bucket(length) == index


def test_no_bucket_below_the_first() -> None:
    with pytest.raises(ValueError, match="length 3"):
        conformal.bucket(3)


def test_conformal_p_by_hand() -> None:
    assert conformal.p_value([1.0, 2.0, 3.0], 2.0) == 3 / 4
    assert conformal.p_value([1.0, 2.0, 3.0], 9.0) == 1 / 4 == conformal.least_p(3)
    assert conformal.p_value([], 9.0) == 1.0
    assert conformal.two_sided_p([1.0, 2.0, 3.0], 0.0) == 0.5
    assert conformal.two_sided_p([1.0, 2.0, 3.0], 2.0) == 1.0
    for bad in (([1.0], math.nan), ([math.nan], 1.0)):
        with pytest.raises(ValueError, match="not measured"):
            conformal.p_value(*bad)


def test_conformal_p_is_valid() -> None:
    rng = np.random.default_rng(3)
    hits = [conformal.p_value(rng.normal(size=39).tolist(), float(rng.normal())) <= 0.05 for _ in range(2000)]
    assert 0.03 < np.mean(hits) < 0.07


def test_calibration_sizes() -> None:
    assert conformal.needed(0.01) == 99
    assert conformal.needed(0.01 / 3) == 299
    assert conformal.least_p(conformal.needed(0.05)) <= 0.05
    with pytest.raises(ValueError, match="level"):
        conformal.needed(0.0)


@quick
@given(st.integers(0, 50), st.integers(0, 50))
def test_clopper_pearson_inverts_the_binomial(hits: int, more: int) -> None:
    trials = hits + more
    low, high = conformal.clopper_pearson(hits, trials)
    assert 0.0 <= low <= high <= 1.0
    if trials and hits < trials:
        assert stats.binom.cdf(hits, trials, high) == pytest.approx(0.025, abs=1e-9)
    if hits:
        assert stats.binom.sf(hits - 1, trials, low) == pytest.approx(0.025, abs=1e-9)


def test_rates() -> None:
    assert conformal.clopper_pearson(0, 0) == (0.0, 1.0)
    assert conformal.upper_rate(0, 299) == pytest.approx(0.00997, abs=1e-5)
    with pytest.raises(ValueError, match="3 of 2"):
        conformal.clopper_pearson(3, 2)


@pytest.mark.parametrize("p0", [0.01, 0.05, 0.3])
def test_bets_lose_where_there_are_fewer_mismatches_than_allowed(p0: float) -> None:
    """A supermartingale: its mean stays at most 1 for any honest rate up to p0."""
    rng = np.random.default_rng(12)
    for rate in (p0, p0 / 2):
        runs = [evalue.mismatch_log_e(rng.random(60) < rate, p0)[-1] for _ in range(2000)]
        assert np.exp(runs).mean() <= 1.15


def test_e_bh_keeps_the_share_of_false_discoveries() -> None:
    """Five of twenty claims are false; e-values of the others are squared normals' likelihood ratios."""
    rng = np.random.default_rng(13)
    shares, found = [], 0
    for _ in range(400):
        x = rng.normal(size=20)
        x[:5] += 4.0
        hits = np.array(evalue.e_bh((3.0 * x - 4.5).tolist(), 0.1))
        shares.append(hits[5:].sum() / max(1, hits.sum()))
        found += int(hits[:5].sum())
    assert np.mean(shares) <= 0.1
    assert found > 1500


@quick
@given(st.integers(0, 500), st.integers(1, 60))
def test_conformal_ranks_are_uniform_by_exchangeability(seed: int, n: int) -> None:
    """Over all n + 1 choices of the tested one, each p-value of 1/(n+1) .. 1 occurs once: exact, whatever the law."""
    scores = np.random.default_rng(seed).standard_cauchy(n + 1)
    got = [conformal.p_value(np.delete(scores, i).tolist(), float(scores[i])) for i in range(n + 1)]
    assert sorted(got) == pytest.approx([(i + 1) / (n + 1) for i in range(n + 1)])


@quick
@given(st.lists(st.floats(-50, 50), min_size=1, max_size=30), st.floats(-50, 50), st.floats(0, 50))
def test_conformal_p_falls_as_scores_rise(calibration: list[float], score: float, more: float) -> None:
    assert conformal.p_value(calibration, score + more) <= conformal.p_value(calibration, score)


@quick
@given(st.floats(0, 1), st.floats(0, 1))
def test_the_calibrator_falls_with_p(p: float, q: float) -> None:
    assert evalue.from_p(min(p, q)) >= evalue.from_p(max(p, q))
