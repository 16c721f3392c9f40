"""Gonka's distance, in both published forms, with their quirks: for compatibility and comparison only.

`go` is the validator's (decentralized-api, customDistance and positionDistance), `python` the benchmark's (mlnode
packages/benchmarks, distance2). They differ: go loops over the validator's tokens, python over the executor's; python
adds 1 above and below the fraction. Quirks kept on purpose:
* the divisor takes its width from the executor's first position, and counts at least 100 positions, so an
  executor chooses part of it and short answers are diluted;
* a token that the other side lacks gets an extrapolated logprob, m1 - (m2 - m1) from the two lowest; with one
  entry m2 is m1 - 100 (go) or m1 - 1 (python), so the extrapolation goes up, to above 0;
* unlisted executor tokens cost nothing in go; an empty validator row costs one a token in python and is an
  error in go (whose similarity is then 0).
Blind to who wrote the text, and to anything below its bound, always.
"""

from __future__ import annotations

import numpy as np

from logproof.verify.columns import NO_ID, Columns, Floats, Ids, matches

GO_PASS = 0.99
"""Similarity above which the validator's own code passes; the chain uses a bound per model."""


def go(artifact: Columns, verifier: Columns) -> float:
    """Distance of the Go validator, >= 0; infinity where a row is empty. Raises ValueError on unequal lengths."""
    _same_length(artifact, verifier)
    if not (artifact.present.any(axis=1).all() and verifier.present.any(axis=1).all()):
        return float("inf")
    terms, _ = _terms(verifier.ids, verifier.logprobs, artifact, lone_gap=100.0, eps=1e-6)
    return float(terms.sum() / _divisor(artifact))


def go_similarity(artifact: Columns, verifier: Columns) -> float:
    """1 - distance, at least 0; 0 where the Go code returns an error."""
    return max(0.0, 1.0 - go(artifact, verifier))


def python(artifact: Columns, verifier: Columns) -> tuple[float, float]:
    """(distance, share of executor tokens that the validator lists); (-1, -1) where the token sequences differ."""
    if not np.array_equal(artifact.sampled_ids, verifier.sampled_ids):
        return -1.0, -1.0
    empty = ~verifier.present.any(axis=1)
    terms, listed = _terms(artifact.ids, artifact.logprobs, verifier, lone_gap=1.0, eps=1e-10)
    terms[empty] = np.where(artifact.present[empty], 1.0, 0.0)
    first = int(artifact.present[0].sum())
    return float((terms.sum() + 1.0) / (_divisor(artifact) + 1.0)), listed / (len(artifact) * first)


def _divisor(artifact: Columns) -> int:
    return max(100, len(artifact)) * int(artifact.present[0].sum())


def _same_length(artifact: Columns, verifier: Columns) -> None:
    if len(artifact) != len(verifier) or len(artifact) == 0:
        raise ValueError(f"{len(artifact)} positions against {len(verifier)}")


def _terms(ids: Ids, values: Floats, other: Columns, *, lone_gap: float, eps: float) -> tuple[Floats, int]:
    """One term an entry of (ids, values), each in 0 .. 0.5, 0 for entries that are not there; how many are matched."""
    partner = np.broadcast_to(_extrapolated(other, lone_gap)[:, None], ids.shape).copy()
    row, here, there = matches(ids, other.ids)
    partner[row, here] = other.logprobs[row, there]
    real = ids != NO_ID
    mine = np.where(real, values, 0.0)
    terms = np.where(real, np.abs(mine - partner) / (eps + np.abs(mine) + np.abs(partner)) / 2.0, 0.0)
    return terms, len(row)


def _extrapolated(other: Columns, lone_gap: float) -> Floats:
    """m1 - (m2 - m1) of each row's two lowest entries; 0 for an empty row, which the callers treat apart."""
    low = np.sort(np.where(other.present, other.logprobs, np.inf), axis=1)
    first = low[:, 0] if other.width else np.full(len(other), np.inf)
    second = low[:, 1] if other.width > 1 else np.full(len(other), np.inf)
    empty = np.isinf(first)
    first = np.where(empty, 0.0, first)
    second = np.where(np.isinf(second), first - lone_gap, second)
    return np.asarray(2.0 * first - second, np.float64)
