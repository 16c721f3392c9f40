"""S2 on margins as honest and foreign texts have them."""

from __future__ import annotations

import numpy as np

from logproof.verify.check_table import SEED
from logproof.verify.checks.seed import seed_finding
from logproof.verify.policy import Policy, Rates
from logproof.verify.stats import conformal, redraw
from verify.builders import policy


def drawn(rng: np.random.Generator, foreign: float = 0.0, n: int = 60) -> redraw.Redraw:
    """A redraw whose rate of small honest margins is its text's own; `foreign` of its tokens are another's draws."""
    margin = np.where(rng.random(n) < rng.beta(2, 80), rng.exponential(0.05, n), 0.0)
    margin = np.where(rng.random(n) < foreign, rng.exponential(0.7, n), margin)
    return redraw.Redraw(margin, rng.random(n) < 0.001, np.zeros(n, np.int64), 1e-6)


def margins_policy(rng: np.random.Generator, records: int) -> Policy:
    some = [drawn(rng) for _ in range(300)]
    bins = np.bincount(np.concatenate([redraw.margin_bins(d) for d in some]), minlength=redraw.BINS)
    scores = {"1": {"margin": tuple(drawn(rng).capped() for _ in range(records))}}
    return policy(exact=None, level=0.1, scores=scores, rates=Rates(margins=tuple(bins.tolist()), tokens=18_000))


def test_the_seed_test_keeps_its_level_where_texts_differ() -> None:
    rng = np.random.default_rng(4)
    bets_alone, both = margins_policy(rng, 0), margins_policy(rng, 299)
    for used in (bets_alone, both):
        alarms = sum(seed_finding(drawn(rng), used).outcome == "fail" for _ in range(400))
        assert conformal.clopper_pearson(alarms, 400)[0] <= used.level_of(SEED)


def test_few_foreign_tokens_are_found_among_honest_margins() -> None:
    rng = np.random.default_rng(5)
    used = margins_policy(rng, 299)
    found = [seed_finding(drawn(rng, 0.08), used) for _ in range(100)]
    assert sum(f.outcome == "fail" for f in found) > 85
    assert all((f.p is not None and f.p <= used.level_of(SEED)) == (f.outcome == "fail") for f in found)
