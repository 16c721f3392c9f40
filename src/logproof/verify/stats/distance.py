"""How far two records of the same token positions lie apart. Pure; e is the artifact, v the verifier.

All of these answer whether the right weights have *seen* the text. None sees who wrote it: a cheap model's text
scored by the right model has distance 0.

Missing tokens are censored, never extrapolated: of a token that one side does not list, that side's `floor` is an upper
bound, so only the amount by which the other side's value exceeds it is evidence.
"""

from __future__ import annotations

from functools import cached_property

import msgspec
import numpy as np

from logproof.verify.artifact.columns import Columns, Floats, Ids, Mask, Matches, matches, row_sums, true_cells


class Pairs(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Compared entries of n positions, sampled tokens included.

    found: the cells of both sides' `entries` that hold the same token. Tables [n, w] of the artifact's entries: e,
    their logprobs, -inf in empty cells; both, whether the verifier lists them too; v, its logprob of them, its floor
    where it does not; residual, e - v, at least 0 where only the artifact lists the token, for its floor is a bound.
    drawn: int64 [n], the column of the sampled token, -1 where its logprob is unknown.
    Of tokens that only the verifier lists, above the artifact's floor, flat: lone_rows, their positions; lone_depths,
    their logprobs; lone_residual, by how much above, negated.
    """

    found: Matches
    e: Floats
    v: Floats
    both: Mask
    residual: Floats
    drawn: Ids
    lone_rows: Ids
    lone_depths: Floats
    lone_residual: Floats

    @property
    def n(self) -> int:
        """Positions."""
        return len(self.e)

    @cached_property
    def used(self) -> Mask:
        """bool [n, w]: cells that say something, listed by both or by the artifact above the verifier's floor."""
        return np.asarray(self.both | (self.residual > 0.0), np.bool_)

    @cached_property
    def cells(self) -> int:
        """How many cells and lone tokens there are."""
        return int(np.count_nonzero(self.used)) + len(self.lone_rows)

    @cached_property
    def size(self) -> Floats:
        """Absolute residuals, float64 [n, w]."""
        return np.abs(self.residual)


def pair(artifact: Columns, verifier: Columns) -> Pairs:
    """Entries of both sides, matched by id. Raises ValueError where the positions differ in number."""
    if len(artifact) != len(verifier):
        raise ValueError(f"{len(artifact)} positions against {len(verifier)}")
    e, theirs = artifact.entries[1], verifier.entries[1]
    found = matches(artifact.entries[0], verifier.entries[0])
    both, v = np.zeros(e.shape, np.bool_), np.empty(e.shape)
    both.ravel()[found.left] = True
    v[:] = verifier.floor[:, None]
    v.ravel()[found.left] = theirs.take(found.right)
    residual = e - v
    over = theirs - artifact.floor[:, None]
    over.ravel()[found.right] = -np.inf
    rows, flat = true_cells(over > 0.0)
    return Pairs(
        found=found,
        e=e,
        v=v,
        both=both,
        residual=np.where(both, residual, np.maximum(residual, 0.0)),
        drawn=artifact.sampled_cell,
        lone_rows=rows,
        lone_depths=theirs.take(flat),
        lone_residual=-over.take(flat),
    )


def mae_k(pairs: Pairs) -> float:
    """Mean absolute residual, nats, >= 0; NaN without a cell. Reads easily; deep logprobs' noise dominates it."""
    total = float(pairs.size.sum()) - float(pairs.lone_residual.sum())
    return total / pairs.cells if pairs.cells else float("nan")


def max_abs(pairs: Pairs) -> float:
    """Largest absolute residual, nats; NaN without a cell. For engines that are exact (float32 on a CPU)."""
    largest = max(float(pairs.size.max(initial=0.0)), -float(pairs.lone_residual.min(initial=0.0)))
    return largest if pairs.cells else float("nan")


def equal_share(pairs: Pairs) -> float:
    """Share of matched entries that are equal to the last bit, 0..1; 0 without any."""
    listed = int(np.count_nonzero(pairs.both))
    return int(np.count_nonzero(pairs.both & (pairs.residual == 0.0))) / listed if listed else 0.0


def positions_over(pairs: Pairs, limit: float) -> Ids:
    """Positions, rising, that hold a residual of more than `limit` nats."""
    mine = np.flatnonzero((pairs.used & (pairs.size > limit)).any(axis=1))
    return np.union1d(mine, pairs.lone_rows[-pairs.lone_residual > limit])


class Sigma(msgspec.Struct, frozen=True):
    """Scale of honest residuals by depth. edges: rising logprobs, m - 1 of them; scales: m values in nats, > 0."""

    edges: tuple[float, ...]
    scales: tuple[float, ...]


LEAST_SCALE = 1e-4
"""Smallest scale, nats: below it, engines that agree to the last bit would make every difference infinite."""


def fit_sigma(honest: list[Pairs], bins: int = 20) -> Sigma:
    """Median absolute residual in quantile bins of e, over cells that both sides list.

    Raises ValueError where fewer than one cell a bin is there.
    """
    if not honest:
        raise ValueError("no honest pairs")
    depth = np.concatenate([p.e[p.both] for p in honest])
    size = np.concatenate([p.size[p.both] for p in honest])
    if len(depth) < bins:
        raise ValueError(f"{len(depth)} honest cells for {bins} bins")
    edges = np.unique(np.quantile(depth, np.linspace(0, 1, bins + 1)[1:-1]))
    where = np.searchsorted(edges, depth, side="right")
    medians = [np.median(size[where == b]) if (where == b).any() else np.median(size) for b in range(len(edges) + 1)]
    return Sigma(tuple(edges.tolist()), tuple(max(LEAST_SCALE, float(m)) for m in medians))


def tz(pairs: Pairs, sigma: Sigma) -> float:
    """Mean of ln(1 + z**2 / 4), z = residual / sigma(depth): >= 0, honest near 0.4, robust to single outliers.

    Blind to a text that another model wrote and the right one scored. Calibrated scales of other prompts or another
    depth range mislead it. NaN without a cell.
    """
    if not pairs.cells:
        return float("nan")
    return float((_terms(pairs, sigma).sum() + _lone_terms(pairs, sigma).sum()) / pairs.cells)


def _terms(pairs: Pairs, sigma: Sigma) -> Floats:
    """ln(1 + z**2 / 4) of the tables' residuals, float64 [n, w], 0 in cells that say nothing."""
    return _spread(pairs.residual.ravel(), pairs.e.ravel(), sigma).reshape(pairs.e.shape)


def _lone_terms(pairs: Pairs, sigma: Sigma) -> Floats:
    return _spread(pairs.lone_residual, pairs.lone_depths, sigma)


def _spread(residual: Floats, depth: Floats, sigma: Sigma) -> Floats:
    """ln(1 + z**2 / 4), flat. The bin is counted, edge by edge: faster than a search in so few edges."""
    edges = np.asarray(sigma.edges, np.float64)[:, None]
    bins = np.asarray((depth >= edges).sum(axis=0, dtype=np.uint8 if len(edges) < 256 else np.uint16), np.intp)
    z = residual * (0.5 / np.asarray(sigma.scales, np.float64)).take(bins)
    z *= z
    z += 1.0
    return np.log(z, out=z)


TAIL_LEAST = 1e-9


def kl_tail(pairs: Pairs) -> float:
    """Mean over positions of KL(e || v) in nats on the tokens both list, with all others as one tail token.

    Tails are at least TAIL_LEAST, which blunts it on peaked rows. Merging tokens can only lower a KL divergence, so
    this is a lower bound of the true one, up to rounding. NaN without positions.
    """
    if pairs.n == 0:
        return float("nan")
    p, q = (np.where(pairs.both, np.exp(x), 0.0) for x in (pairs.e, pairs.v))
    p_tail, q_tail = (np.maximum(TAIL_LEAST, 1.0 - row_sums(x)) for x in (p, q))
    common = p.ravel() @ pairs.residual.ravel()
    return float((common + p_tail @ np.log(p_tail / q_tail)) / pairs.n)


class Shape(msgspec.Struct, frozen=True):
    """Least-squares slope of e - v on v within positions, and where the sampled token stands.

    slope: 1/T - 1 where the artifact hides a temperature T (each position's normaliser drops out). bias: mean of e - v
    on the sampled token less the mean on the others, nats: above 0 where sampled tokens were lifted. NaN where there is
    too little to fit.
    """

    slope: float
    bias: float


def shape(pairs: Pairs) -> Shape:
    """The signed shape of the residuals over entries that both list. Needs two distinct depths in one position."""
    rows = np.flatnonzero(pairs.drawn >= 0)
    at = pairs.drawn.take(rows)
    rows, at = (x[pairs.both[rows, at]] for x in (rows, at))
    mine, shared = pairs.residual[rows, at].sum(), np.where(pairs.both, pairs.residual, 0.0)
    others = int(np.count_nonzero(pairs.both)) - len(rows)
    bias = mine / len(rows) - (shared.sum() - mine) / others if len(rows) and others else np.nan
    v = np.where(pairs.both, pairs.v, 0.0)
    mean = row_sums(v) / np.maximum(row_sums(pairs.both.astype(np.float64)), 1.0)
    centred = np.where(pairs.both, v - mean[:, None], 0.0).ravel()
    square = centred @ centred
    return Shape(float(centred @ shared.ravel() / square) if square > 0.0 else float("nan"), float(bias))


def worst_positions(pairs: Pairs, sigma: Sigma) -> Floats:
    """Per position mean of ln(1 + z**2 / 4), float64 [n], NaN where a position carries no cell."""
    lone = np.bincount(pairs.lone_rows, _lone_terms(pairs, sigma), minlength=pairs.n)
    count = pairs.used.sum(axis=1) + np.bincount(pairs.lone_rows, minlength=pairs.n)
    total = row_sums(_terms(pairs, sigma)) + lone
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
