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

from logproof.verify.artifact.columns import Columns, Floats, Mask, true_cells
from logproof.verify.stats.distance import Pairs, pair

GO_PASS = 0.99
"""Similarity above which the validator's own code passes; the chain uses a bound per model."""


def go(artifact: Columns, verifier: Columns) -> float:
    """Distance of the Go validator, >= 0; infinity where a row is empty. Raises ValueError on unequal lengths."""
    return GonkaLists(artifact, verifier).go


class GonkaLists:
    """The top lists of both sides, compared once for both forms.

    pairs: of the artifact with this verifier's rows or wider ones, where they were paired already.
    """

    def __init__(self, artifact: Columns, verifier: Columns, pairs: Pairs | None = None) -> None:
        self.artifact, self.verifier = artifact, verifier
        if len(artifact) == 0:
            raise ValueError("no positions")
        pairs = pairs or pair(artifact, verifier)
        self._shared = pairs.found.within(artifact.width, verifier.width)
        listed = np.zeros(artifact.ids.shape, np.bool_)
        listed.ravel()[self._shared.left] = True
        e, v, gap = (table[:, : artifact.width] for table in (pairs.e, pairs.v, pairs.size))
        self._listed = listed
        self._gap, self._size = np.where(listed, gap, 0.0), np.abs(e) + np.abs(v)

    @property
    def go(self) -> float:
        """The Go validator's distance."""
        if not (self.artifact.counts.all() and self.verifier.counts.all()):
            return float("inf")
        alone = np.ascontiguousarray(self.verifier.present)
        alone.ravel()[self._shared.right] = False
        lone = _lone_terms(self.verifier, alone, _extrapolated(self.artifact, 100.0), GO_EPS)
        return float((self._matched(GO_EPS) + lone.sum()) / self._divisor)

    @property
    def python(self) -> tuple[float, float]:
        """The benchmark's distance, and the share of executor tokens that the validator lists.

        (-1, -1) where the token sequences differ.
        Raises ValueError where the first row, whose width divides, is empty.
        """
        if not np.array_equal(self.artifact.sampled_ids, self.verifier.sampled_ids):
            return -1.0, -1.0
        width = int(self.artifact.counts[0])
        if width == 0:
            raise ValueError("the artifact lists nothing at its first position")
        partner = np.where(self.verifier.counts > 0, _extrapolated(self.verifier, 1.0), np.inf)
        alone = self.artifact.present & ~self._listed
        total = self._matched(PYTHON_EPS) + _lone_terms(self.artifact, alone, partner, PYTHON_EPS).sum()
        share = len(self._shared.left) / (len(self.artifact) * width)
        return float((total + 1.0) / (self._divisor + 1.0)), share

    def _matched(self, eps: float) -> float:
        return float((self._gap / (eps + self._size)).sum() / 2.0)

    @property
    def _divisor(self) -> int:
        return max(100, len(self.artifact)) * int(self.artifact.counts[0])


GO_EPS, PYTHON_EPS = 1e-6, 1e-10
"""What each form adds to its divisors."""


def _lone_terms(columns: Columns, alone: Mask, partner: Floats, eps: float) -> Floats:
    """|a - b| / (eps + |a| + |b|) / 2 of each entry that is alone and its position's partner; 1 for an infinite
    partner."""
    rows, flat = true_cells(alone)
    a, b = columns.logprobs.take(flat), partner.take(rows)
    endless = np.isinf(b)
    b = np.where(endless, 0.0, b)
    return np.where(endless, 1.0, np.abs(a - b) / (eps + np.abs(a) + np.abs(b)) / 2.0)


def _extrapolated(other: Columns, lone_gap: float) -> Floats:
    """m1 - (m2 - m1) of each row's two lowest entries; without meaning for an empty row."""
    if other.width == 0:
        return np.zeros(len(other))
    rows, last = np.arange(len(other)), np.maximum(other.counts - 1, 0)
    first = np.maximum(other.logprobs[rows, last], -1e300)
    second = np.where(last > 0, other.logprobs[rows, last - 1], first - lone_gap)
    return np.asarray(2.0 * first - second, np.float64)
