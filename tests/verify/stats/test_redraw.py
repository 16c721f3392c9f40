"""Draws made again: honest records never contradict themselves, and false claims do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logproof.errors import UsageError
from logproof.verify.artifact.columns import make_columns
from logproof.verify.stats import redraw
from logproof.verify.stats.drawable_tokens import support
from logproof.verify.stats.plausibility import (
    outcomes,
)
from logproof.verify.stats.sampler import Sampler
from logproof.verify.stats.sampler_profiles import profile
from verify.builders import VOCAB, draw, logits, noisy, quick, record

SPLITMIX = profile("v1-cpu-splitmix")


samplers = st.builds(
    Sampler,
    st.sampled_from([0.5, 0.7, 1.0, 1.3]),
    st.sampled_from([0, 1, 3, 8, 40]),
    st.sampled_from([1.0, 0.95, 0.6, 0.2]),
    st.sampled_from([0.0, 0.02, 0.3]),
)


@quick
@given(st.integers(0, 10_000), samplers, st.integers(1, 30))
def test_an_honest_record_never_contradicts_itself(seed: int, sampler: Sampler, k: int) -> None:
    z = logits(12, seed)
    c = record(z, draw(z, sampler, seed), k)
    got = redraw.redraw(c, sampler, SPLITMIX, seed, 3, vocab_size=VOCAB)
    assert redraw.first_violation(got) is None
    assert not got.out.any()
    assert got.capped() <= got.tolerance


cold = st.builds(
    Sampler, st.sampled_from([0.01, 0.02, 0.1]), st.just(0), st.sampled_from([1.0, 0.9]), st.sampled_from([0.0, 0.1])
)


@quick
@given(st.integers(0, 10_000), cold, st.integers(1, 30))
@pytest.mark.filterwarnings("error")
def test_a_cold_record_has_a_support(seed: int, sampler: Sampler, k: int) -> None:
    """exp(logprob / 0.01) is 0 in float64 below -7.45 nats, which many a row's best is."""
    z = logits(12, seed, spread=0.2)
    c = record(z, draw(z, sampler, seed), k)
    got = support(c, sampler, vocab_size=VOCAB)
    assert not got.sampled_cut.any()
    assert np.isfinite(got.log_z_high).all()
    redrawn = redraw.redraw(c, sampler, SPLITMIX, seed, 3, vocab_size=VOCAB)
    assert redraw.first_violation(redrawn) is None
    drawn = outcomes(c, sampler, VOCAB)
    assert not np.isnan(drawn.log_q).any()
    assert not drawn.out.any()


@quick
@given(st.integers(0, 3000), samplers, st.sampled_from([16, 256, 1024]))
def test_rounding_within_the_recorded_step_is_no_contradiction(seed: int, sampler: Sampler, grid: int) -> None:
    z = logits(12, seed)
    c = record(z, draw(z, sampler, seed), 15)
    coarse = make_columns(
        c.sampled_ids,
        np.round(c.sampled_logprobs * grid) / grid,
        c.ids.tolist(),
        (np.round(c.logprobs * grid) / grid).tolist(),
    )
    got = redraw.redraw(coarse, sampler, SPLITMIX, seed, 3, step=0.5 / grid, vocab_size=VOCAB)
    assert redraw.first_violation(got) is None


@pytest.mark.parametrize(
    ("true", "told", "share"),
    [
        (Sampler(1.1), Sampler(1.0), 0.01),
        (Sampler(0.0), Sampler(1.0), 0.2),
        (Sampler(1.0, 0, 0.8), Sampler(1.0), 0.02),
        (Sampler(1.0), Sampler(1.0, 10), 0.1),
    ],
)
def test_false_sampling_claims_contradict_the_record(true: Sampler, told: Sampler, share: float) -> None:
    z = logits(600, 11)
    c = record(z, draw(z, true, 5), 20)
    got = redraw.redraw(c, told, SPLITMIX, 5, 3, vocab_size=VOCAB)
    assert got.mismatch.mean() > share


def test_another_seed_and_a_foreign_writer_contradict_the_record() -> None:
    z = logits(100, 12)
    c = record(z, draw(z, Sampler(1.0), 5), 20)
    assert redraw.redraw(c, Sampler(1.0), SPLITMIX, 6, 3).mismatch.mean() > 0.5
    foreign = draw(noisy(z, 3, 1.0), Sampler(1.0), 5)
    got = redraw.redraw(record(z, foreign, 20), Sampler(1.0), SPLITMIX, 5, 3)
    assert got.mismatch.mean() > 0.1
    assert redraw.first_violation(got) == int(np.flatnonzero(got.mismatch)[0])


def test_unknown_sampled_logprobs_are_not_judged() -> None:
    c = make_columns([5], [None], [[1, 2]], [[-0.5, -1.0]])
    got = redraw.redraw(c, Sampler(1.0), SPLITMIX, 1, 1)
    assert not got.known.any()
    assert np.isnan(got.capped())
    assert redraw.margin_bins(got).tolist() == []
    assert redraw.first_violation(got) is None


def test_margin_bins() -> None:
    got = redraw.Redraw(
        np.array([0.0, 1e-6, 0.02, 0.03, 0.2, 7.0, 0.1]),
        np.array([False] * 6 + [True]),
        np.zeros(7, np.int64),
        1e-5,
    )
    assert redraw.margin_bins(got).tolist() == [0, 0, 1, 1, 5, 8, 9]
    assert got.capped(1.0) == pytest.approx((0.02 + 0.03 + 0.2 + 1.0 + 1.0) / 7, abs=1e-6)


def test_a_profile_without_noise_is_refused() -> None:
    with pytest.raises(UsageError):
        redraw.redraw(record(logits(1, 1), [1], 3), Sampler(1.0), profile("flashinfer"), 1, 1)
