"""Rates with their denominators and standard errors, and the figures of repeated samples.

A failed sample is no wrong answer: it is counted apart and enters no rate. A rate is over scored samples only,
its denominator beside it; one that cannot be computed is absent, not zero. Pure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import msgspec


class Rate(msgspec.Struct, frozen=True):
    """A mean of values over n rows. se: standard error of the mean, None for fewer than two rows."""

    value: float
    n: int
    se: float | None


class Mean:
    """A running mean over any number of values in constant memory (Welford's recurrence)."""

    def __init__(self) -> None:
        self.n = 0
        self._mean = 0.0
        self._m2 = 0.0

    def add(self, value: float) -> None:
        """Count one value; it must be finite."""
        self.n += 1
        delta = value - self._mean
        self._mean += delta / self.n
        self._m2 += delta * (value - self._mean)

    def rate(self) -> Rate | None:
        """The mean with sqrt(sample variance / n), or None where nothing was counted."""
        if self.n == 0:
            return None
        se = math.sqrt(self._m2 / (self.n - 1) / self.n) if self.n > 1 else None
        return Rate(self._mean, self.n, se)


def rate(values: Sequence[float]) -> Rate | None:
    """The mean of some values; see `Mean.rate`."""
    mean = Mean()
    for value in values:
        mean.add(value)
    return mean.rate()


def pass_at_k(hits: int, drawn: int, k: int) -> float | None:
    """Chance that one of k draws is right: 1 - C(n - c, k) / C(n, k), unbiased (Chen et al. 2021, eq. 1).

    None where fewer than k draws exist: a short draw says nothing about k.
    """
    _check(hits, drawn, k)
    return None if drawn < k else 1 - math.comb(drawn - hits, k) / math.comb(drawn, k)


def pass_hat_k(hits: int, drawn: int, k: int) -> float | None:
    """Chance that k draws are all right: C(c, k) / C(n, k), unbiased. None where fewer than k draws exist."""
    _check(hits, drawn, k)
    return None if drawn < k else math.comb(hits, k) / math.comb(drawn, k)


def maj_at_k(answers: Sequence[str | None], right: Sequence[bool], k: int) -> float | None:
    """Whether the most frequent of the first k answers is right, between 0 and 1.

    answers: what each draw says, equal texts being one answer; None is no answer and has no vote. right: whether
    that draw is right. Answers that tie share the vote: m of t tied answers right give m / t. No vote at all
    gives 0. None where fewer than k draws exist.
    """
    if len(answers) != len(right):
        raise ValueError(f"{len(answers)} answers, {len(right)} judgements")
    if k < 1:
        raise ValueError("k must be at least 1")
    if len(answers) < k:
        return None
    judged = {a: ok for a, ok in zip(answers[:k], right[:k], strict=True) if a is not None}
    votes = Counter(a for a in answers[:k] if a is not None)
    if not votes:
        return 0.0
    most = max(votes.values())
    tied = [judged[a] for a, n in votes.items() if n == most]
    return sum(tied) / len(tied)


def avg_at_n(hits: int, drawn: int) -> float | None:
    """Share of right draws, or None where there is none."""
    return hits / drawn if drawn else None


def _check(hits: int, drawn: int, k: int) -> None:
    if k < 1 or not 0 <= hits <= drawn:
        raise ValueError(f"{hits} hits of {drawn} draws, k {k}")
