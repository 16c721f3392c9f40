"""Whether tokens are plausible draws, without their seed."""

from __future__ import annotations

import numpy as np
import pytest

from logproof.verify.artifact.columns import make_columns
from logproof.verify.stats.plausibility import (
    greedy_gaps,
    outcomes,
    surprise,
    tempered_log_e,
)
from logproof.verify.stats.sampler import Sampler
from verify.builders import VOCAB, draw, from_maps, logits, record


def test_greedy_gaps_treat_ties_as_a_set() -> None:
    c = from_maps([1, 2, 3, 4], [{1: -1.0, 2: -1.0}, {1: -1.0, 2: -1.0}, {1: -0.5, 3: -2.0}, {1: -0.5}])
    assert greedy_gaps(c)[:3].tolist() == [0.0, 0.0, 1.5]
    assert np.isnan(greedy_gaps(c)[3])
    apart = make_columns([9], [-0.2], [[1]], [[-3.0]])
    assert greedy_gaps(apart).tolist() == [0.0]


def z_scores(true: Sampler, told: Sampler, k: int, count: int = 60) -> list[float]:
    out = []
    for i in range(count):
        z = logits(40, 20_000 + i)
        c = record(z, draw(z, true, i), k)
        out.append(surprise(outcomes(c, told, VOCAB)).z)
    return out


@pytest.mark.parametrize("told", [Sampler(1.0), Sampler(1.0, 20), Sampler(0.8, 10, 0.9), Sampler(1.2, 15, 1.0, 0.02)])
@pytest.mark.parametrize("k", [3, 30])
def test_honest_surprise_is_near_standard_normal(told: Sampler, k: int) -> None:
    if k < told.top_k or (told.top_p < 1.0 and k < 30):
        return
    z = z_scores(told, told, k)
    assert abs(np.mean(z)) < 0.45
    assert 0.75 < np.std(z) < 1.3


def test_surprise_sees_other_temperatures() -> None:
    assert np.mean(z_scores(Sampler(1.4), Sampler(1.0), 30, 40)) > 1.5
    assert np.mean(z_scores(Sampler(0.6), Sampler(1.0), 30, 40)) < -2


def test_surprise_by_hand() -> None:
    p = np.log([0.5, 0.25])
    c = make_columns([1, 2], [p[0], p[1]], [[1, 2, 3], [1, 2, 3]], [[*p, -3.0], [*p, -3.0]])
    told = surprise(outcomes(c, Sampler(1.0)))
    q = np.array([0.5, 0.25, 0.25])
    h = float(-(q * np.log(q)).sum())
    var = float((q * np.log(q) ** 2).sum()) - h * h
    assert told.entropy == pytest.approx(2 * h)
    assert told.z == pytest.approx((np.log(2) + np.log(4) - 2 * h) / np.sqrt(2 * var))
    assert (told.tokens, told.out, told.open) == (2, 0, 0)


def test_tokens_outside_the_support_are_counted_apart() -> None:
    z = logits(30, 14)
    lowest = [int(t) for t in z.argmin(axis=1)]
    told = surprise(outcomes(record(z, lowest, 30), Sampler(1.0, 5), VOCAB))
    assert (told.out, told.tokens) == (30, 0)
    assert np.isnan(told.z)


def test_unlisted_mass_leaves_positions_open() -> None:
    z = logits(30, 15)
    told = surprise(outcomes(record(z, draw(z, Sampler(2.0), 1), 3), Sampler(2.0), VOCAB))
    assert told.open == 30
    assert tempered_log_e(outcomes(record(z, draw(z, Sampler(2.0), 1), 3), Sampler(2.0), VOCAB)).size == 0


def test_tempered_evidence_grows_only_for_false_claims() -> None:
    z = logits(500, 16)
    honest = outcomes(record(z, draw(z, Sampler(1.0), 2), 30), Sampler(1.0), VOCAB)
    hot = outcomes(record(z, draw(z, Sampler(1.3), 2), 30), Sampler(1.0), VOCAB)
    assert tempered_log_e(honest).max() < np.log(100)
    assert tempered_log_e(hot)[-1] > np.log(100)


def test_honest_tempered_evidence_rarely_grows() -> None:
    """Ville: it ever reaches 10 in at most one honest run of ten."""
    tops = []
    for i in range(200):
        z = logits(15, 40_000 + i)
        drawn = outcomes(record(z, draw(z, Sampler(1.0), i), 20), Sampler(1.0), VOCAB)
        tops.append(float(tempered_log_e(drawn).max()))
    assert np.mean(np.array(tops) >= np.log(10)) <= 0.1
