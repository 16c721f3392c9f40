"""Conformal p-values and exact intervals: what a statement about false positives rests on.

A conformal p-value is valid at any sample size if the tested score is exchangeable with the calibration scores: same
model, engine pair, mode, width and length bucket, prompts of the same kind, one score a sequence. Where it is not, it
says nothing; calibrate again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

BUCKETS = (4, 16, 64, 256)
"""Least number of positions of each length bucket: 4-15, 16-63, 64-255, 256 and more. Fewer than four tell nothing."""


def bucket(length: int) -> int:
    """Index of the length's bucket. Raises ValueError below the first."""
    if length < BUCKETS[0]:
        raise ValueError(f"length {length} is below {BUCKETS[0]}")
    return int(np.searchsorted(BUCKETS, length, side="right")) - 1


def p_value(calibration: Sequence[float], score: float) -> float:
    """(1 + number of calibration scores >= score) / (1 + n), in 1/(n+1) .. 1: large scores are strange.

    A score that is NaN raises ValueError: it was not measured.
    """
    scores = np.asarray(calibration, np.float64)
    if np.isnan(score) or np.isnan(scores).any():
        raise ValueError("a score was not measured")
    return float((1 + np.count_nonzero(scores >= score)) / (1 + len(scores)))


def two_sided_p(calibration: Sequence[float], score: float) -> float:
    """Twice the smaller one-sided conformal p-value, at most 1: for scores that are strange at either end."""
    flipped = [-c for c in calibration]
    return min(1.0, 2.0 * min(p_value(calibration, score), p_value(flipped, -score)))


def least_p(n: int) -> float:
    """The smallest p-value that n calibration scores can give."""
    return 1.0 / (n + 1)


def least_two_sided_p(n: int) -> float:
    """The smallest two-sided p-value that n calibration scores can give."""
    return 2.0 * least_p(n)


def needed(level: float) -> int:
    """Calibration scores needed before any p-value can be at most `level`. Raises ValueError outside 0..1."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"level {level} is not between 0 and 1")
    return int(np.ceil(1.0 / level - 1e-9)) - 1


def clopper_pearson(hits: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Exact two-sided confidence interval of a rate. (0, 1) for no trials. Raises ValueError for impossible counts."""
    if not 0 <= hits <= trials:
        raise ValueError(f"{hits} of {trials}")
    if trials == 0:
        return 0.0, 1.0
    from scipy import special  # here, for it takes a tenth of a command's start, and few commands need it

    tail = (1.0 - confidence) / 2.0
    low = 0.0 if hits == 0 else float(special.betaincinv(hits, trials - hits + 1, tail))
    high = 1.0 if hits == trials else float(special.betaincinv(hits + 1, trials - hits, 1.0 - tail))
    return low, high


def upper_rate(hits: int, trials: int, confidence: float = 0.95) -> float:
    """One-sided exact upper bound of a rate; 1 for no trials."""
    return clopper_pearson(hits, trials, 1.0 - 2.0 * (1.0 - confidence))[1]
