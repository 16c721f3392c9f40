"""e-values: evidence that may be multiplied, watched at any time, and added up over requests and providers.

An e-value is a number >= 0 whose mean is at most 1 if the claim is true; it exceeds 1/a with chance at most a
(Ville: even if one may stop whenever one likes). All work in logs. Products need fresh evidence: two verdicts about
one prompt
and seed count once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from logproof.verify.artifact.columns import Floats, Ids


def from_p(p: float, kappa: float = 0.5) -> float:
    """log e = log(kappa) + (kappa - 1) log p, the calibrator of Shafer (2021); p in 0..1, kappa in 0..1 exclusive.

    Of p = 0 infinite; conformal p-values never are. Raises ValueError out of range.
    """
    if not 0.0 <= p <= 1.0 or not 0.0 < kappa < 1.0:
        raise ValueError(f"p {p} or kappa {kappa} is out of range")
    with np.errstate(divide="ignore"):
        return float(np.log(kappa) + (kappa - 1.0) * np.log(p))


def ever_p(log_e: Floats) -> float:
    """A p-value from a running log e-value, float64 [n]: one over the most it ever reached, at most 1.

    By Ville's inequality an honest run ever reaches 1/p with chance at most p. 1 without a step.
    """
    return math.exp(-max(0.0, float(log_e.max(initial=0.0))))


def average(log_es: Sequence[float]) -> float:
    """Log of the mean e-value: valid under any dependence. Raises ValueError for none."""
    if not log_es:
        raise ValueError("no e-values")
    return float(log_sum_exp(np.asarray(log_es, np.float64), axis=0)) - float(np.log(len(log_es)))


def e_bh(log_es: Sequence[float], level: float) -> list[bool]:
    """Which of m claims are rejected with false-discovery rate at most `level`, under any dependence.

    The e-BH procedure (Wang, Ramdas 2022): the k largest, k the most with e_(k) >= m / (level k).
    """
    m = len(log_es)
    order = sorted(range(m), key=lambda i: -log_es[i])
    most = max((k for k in range(1, m + 1) if log_es[order[k - 1]] >= np.log(m / (level * k))), default=0)
    chosen = set(order[:most])
    return [i in chosen for i in range(m)]


BETS = (1.0, 2.0, 4.0, 8.0, 16.0, 25.0)
"""Stakes on "more mismatches than p0" (cut to what p0 allows)."""
MOST_STAKE = 0.99
"""Largest share of the capital that one honest token may cost a bet."""


def mismatch_log_e(mismatch: Sequence[bool] | np.ndarray[tuple[int, ...], np.dtype[np.bool_]], p0: float) -> Floats:
    """Running log e against "each mismatch has chance at most p0", float64 [n].

    The mean over BETS of the product of 1 + b (m - p0), b cut below 1 / p0. p0 in 0..1: with p0 = 0 the first
    mismatch is infinite evidence. Raises ValueError out of range.
    """
    if not 0.0 <= p0 < 1.0:
        raise ValueError(f"p0 {p0} is out of range")
    m = np.asarray(mismatch, np.float64)
    if p0 == 0.0:
        return np.where(np.cumsum(m) > 0, np.inf, 0.0)
    stakes = np.minimum(np.asarray(BETS), MOST_STAKE / p0)[:, None]
    runs = np.cumsum(np.log1p(stakes * (m - p0)), axis=1)
    return np.asarray(log_sum_exp(runs, axis=0) - np.log(len(BETS)), np.float64)


FOREIGN = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32)
"""Shares of tokens that are bet to be foreign to the seed."""
SMOOTHING = 3.0


def null_shares(counts: Sequence[int] | Ids) -> Floats:
    """Honest share of each margin bin, float64 [b], summing to 1, with SMOOTHING more counts in every bin but the
    first.

    Smoothing favours the executor: rare honest margins are never impossible.
    """
    table = np.asarray(counts, np.float64).copy()
    table[1:] += SMOOTHING
    return np.asarray(table / table.sum(), np.float64)


def bins_log_e(bins: Ids, null: Floats) -> Floats:
    """Running log e of margin bins against the honest shares, float64 [n]: bets on the size of margins.

    The mean over bets of the product of q(bin) / null(bin). A bet says that a share of FOREIGN of the tokens are
    another's: their margins fall in all bins but the first alike, once with the last (out of support) and once without.
    No alternative is fitted to a fraud. Valid if the null's shares are honest ones. Raises ValueError for a bin of
    share 0 or fewer than three bins.
    """
    if (null <= 0.0).any() or len(null) < 3:
        raise ValueError("an honest bin share is 0, or there are fewer than three; smooth the counts")
    anywhere = np.arange(len(null)) > 0
    spreads = np.stack([anywhere, anywhere & (np.arange(len(null)) < len(null) - 1)]).astype(np.float64)
    spreads /= spreads.sum(axis=1, keepdims=True)
    share = np.asarray(FOREIGN)[:, None, None]
    gains = np.log1p(share * (spreads / null - 1.0)).reshape(-1, len(null))
    runs = np.cumsum(gains.take(bins, axis=1), axis=1)
    return np.asarray(log_sum_exp(runs, axis=0) - np.log(len(runs)), np.float64)


def log_sum_exp(values: Floats, axis: int) -> Floats:
    """log of the summed exp along an axis, without overflow; -inf of nothing but -inf."""
    top = values.max(axis=axis, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(values - top).sum(axis=axis)) + top.squeeze(axis), np.float64)
