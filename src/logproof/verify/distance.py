"""How far two records of the same token positions lie apart. Pure; e is the artifact, v the verifier.

All of these answer whether the right weights have *seen* the text. None sees who wrote it: a cheap model's text
scored by the right model has distance 0.

Missing tokens are censored, never extrapolated: of a token that one side does not list, that side's `floor` is an upper
bound, so only the amount by which the other side's value exceeds it is evidence.
"""

from __future__ import annotations

import msgspec
import numpy as np

from logproof.verify.columns import NO_ID, Columns, Floats, Ids, Mask, floor, matches


class Pairs(msgspec.Struct, frozen=True, eq=False):
    """Matched entries of n positions.

    Arrays [n, m] over the artifact's entries, sampled included: ids int64, NO_ID where empty; e, v: nats, NaN where
    that side does not list the token; residual: e - v where both list it (`both`), else the part of e above the
    verifier's floor; used: cells that carry evidence, which a censored one does only above the floor.
    lone_rows, lone_v, lone_residual: [q], tokens that only the verifier lists and that the artifact would have listed:
    position, v, and minus the part of v above the artifact's floor.
    """

    ids: Ids
    e: Floats
    v: Floats
    residual: Floats
    used: Mask
    both: Mask
    lone_rows: Ids
    lone_v: Floats
    lone_residual: Floats

    def residuals(self) -> Floats:
        """All residuals, float64 [cells], nats."""
        return np.concatenate((self.residual[self.used], self.lone_residual))

    def depths(self) -> Floats:
        """The logprob at which each residual was found: e, or v where the artifact lacks the token."""
        return np.concatenate((self.e[self.used], self.lone_v))


def pair(artifact: Columns, verifier: Columns) -> Pairs:
    """Entries of both sides, matched by id. Raises ValueError where the positions differ in number."""
    if len(artifact) != len(verifier):
        raise ValueError(f"{len(artifact)} positions against {len(verifier)}")
    ids, own = artifact.entries
    other_ids, other = verifier.entries
    row, here, there = matches(ids, other_ids)
    v = np.full(ids.shape, np.nan)
    v[row, here] = other[row, there]
    both = ~np.isnan(v)
    has_e = ids != NO_ID
    e = np.where(has_e, own, np.nan)
    residual = np.where(both, e - v, np.maximum(0.0, e - floor(verifier)[:, None]))
    residual = np.where(has_e, residual, 0.0)
    over = np.where(other_ids != NO_ID, other, -np.inf) - floor(artifact)[:, None]
    over[row, there] = -np.inf
    lone = np.nonzero(over > 0.0)
    return Pairs(ids, e, v, residual, both | (residual > 0.0), both, lone[0], other[lone], -over[lone])


def mae_k(pairs: Pairs) -> float:
    """Mean absolute residual, nats, >= 0; NaN without a cell. Reads easily; deep logprobs' noise dominates it."""
    sizes = np.abs(pairs.residuals())
    return float(sizes.mean()) if len(sizes) else float("nan")


def max_abs(pairs: Pairs) -> float:
    """Largest absolute residual, nats; NaN without a cell. For engines that are exact (float32 on a CPU)."""
    sizes = np.abs(pairs.residuals())
    return float(sizes.max()) if len(sizes) else float("nan")


def positions_over(pairs: Pairs, limit: float) -> Ids:
    """Positions, rising, that hold a residual of more than `limit` nats."""
    own = np.flatnonzero((np.where(pairs.used, np.abs(pairs.residual), 0.0) > limit).any(axis=1))
    return np.union1d(own, pairs.lone_rows[np.abs(pairs.lone_residual) > limit])


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
    size = np.concatenate([np.abs(p.residual[p.both]) for p in honest])
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
    z = pairs.residuals() / _scale(pairs.depths(), sigma)
    return float(np.log1p(z * z / 4.0).mean()) if len(z) else float("nan")


def _scale(depth: Floats, sigma: Sigma) -> Floats:
    edges = np.asarray(sigma.edges, np.float64)
    return np.asarray(sigma.scales, np.float64)[np.searchsorted(edges, depth, side="right")]


TAIL_LEAST = 1e-9


def kl_tail(pairs: Pairs) -> float:
    """Mean over positions of KL(e || v) in nats on the tokens both list, with all others as one tail token.

    Tails are at least TAIL_LEAST, which blunts it on peaked rows. Merging tokens can only lower a KL divergence, so
    this is a lower bound of the true one, up to rounding. NaN without positions.
    """
    if len(pairs.e) == 0:
        return float("nan")
    e = np.where(pairs.both, pairs.e, -np.inf)
    v = np.where(pairs.both, pairs.v, -np.inf)
    p = np.exp(e)
    listed = (p * np.where(pairs.both, pairs.residual, 0.0)).sum(axis=1)
    p_tail = np.maximum(TAIL_LEAST, 1.0 - p.sum(axis=1))
    q_tail = np.maximum(TAIL_LEAST, 1.0 - np.exp(v).sum(axis=1))
    return float((listed + p_tail * np.log(p_tail / q_tail)).mean())


class Shape(msgspec.Struct, frozen=True):
    """Least-squares slope of e - v on v within positions, and where the sampled token stands.

    slope: 1/T - 1 where the artifact hides a temperature T (each position's normaliser drops out). bias: mean of e - v
    on the sampled token less the mean on the others, nats: above 0 where sampled tokens were lifted. NaN where there is
    too little to fit.
    """

    slope: float
    bias: float


def shape(pairs: Pairs, sampled_ids: Ids) -> Shape:
    """The signed shape of the residuals over cells that both list. Needs two distinct depths in one position."""
    drawn = (pairs.ids == sampled_ids[:, None]) & pairs.both
    rest = pairs.both & ~drawn
    bias = pairs.residual[drawn].mean() - pairs.residual[rest].mean() if drawn.any() and rest.any() else np.nan
    v, r = _centred(pairs.v, pairs.both), _centred(pairs.residual, pairs.both)
    square = float((v * v).sum())
    return Shape(float((v * r).sum()) / square if square > 0.0 else float("nan"), float(bias))


def _centred(values: Floats, used: Mask) -> Floats:
    """Values less their position's mean over used cells; 0 elsewhere."""
    kept = np.where(used, values, 0.0)
    mean = kept.sum(axis=1) / np.maximum(used.sum(axis=1), 1)
    return np.where(used, kept - mean[:, None], 0.0)


def worst_positions(pairs: Pairs, sigma: Sigma) -> Floats:
    """Per position mean of ln(1 + z**2 / 4), float64 [n], NaN where a position carries no cell."""
    rows = np.concatenate((np.nonzero(pairs.used)[0], pairs.lone_rows))
    z = pairs.residuals() / _scale(pairs.depths(), sigma)
    n = len(pairs.e)
    count = np.bincount(rows, minlength=n)
    total = np.bincount(rows, np.log1p(z * z / 4.0), minlength=n)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
