"""How far two records of the same token positions lie apart. Pure; e is the artifact, v the verifier.

All of these answer whether the right weights have *seen* the text. None sees who wrote it: a cheap model's text
scored by the right model has distance 0.

Missing tokens are censored, never extrapolated: of a token that one side does not list, that side's `floor` is an upper
bound, so only the amount by which the other side's value exceeds it is evidence.
"""

from __future__ import annotations

import msgspec
import numpy as np

from logproof.verify.columns import NO_ID, Columns, Floats, Ids, Mask, floor, lookup, with_sampled


class Pairs(msgspec.Struct, frozen=True, eq=False):
    """Matched entries. All arrays [n, m]: the artifact's entries (sampled included), then the verifier's others.

    ids: int64, NO_ID where empty. e, v: nats, NaN where that side does not list the token. residual: e - v where
    both list it; where one side lacks it, its censored residual (0 when the bound allows equality). used: cells
    that carry a residual. both: cells that both sides list.
    """

    ids: Ids
    e: Floats
    v: Floats
    residual: Floats
    used: Mask
    both: Mask


def pair(artifact: Columns, verifier: Columns) -> Pairs:
    """Entries of both sides, matched by id. Raises ValueError where the positions differ in number."""
    if len(artifact) != len(verifier):
        raise ValueError(f"{len(artifact)} positions against {len(verifier)}")
    own_ids, own = with_sampled(artifact)
    theirs = lookup(verifier, own_ids)
    other_ids, other = with_sampled(verifier)
    back = lookup(artifact, other_ids)
    lone = np.isnan(back) & (other_ids != NO_ID)
    ids = np.concatenate((own_ids, np.where(lone, other_ids, NO_ID)), axis=1)
    e = np.concatenate((np.where(own_ids == NO_ID, np.nan, own), np.full(other.shape, np.nan)), axis=1)
    v = np.concatenate((theirs, np.where(lone, other, np.nan)), axis=1)
    return _residuals(ids, e, v, floor(artifact)[:, None], floor(verifier)[:, None])


def _residuals(ids: Ids, e: Floats, v: Floats, e_floor: Floats, v_floor: Floats) -> Pairs:
    has_e, has_v = ~np.isnan(e), ~np.isnan(v)
    both = has_e & has_v
    residual = np.zeros(e.shape)
    np.subtract(e, v, out=residual, where=both)
    np.copyto(residual, np.maximum(0.0, e - v_floor), where=has_e & ~has_v)
    np.copyto(residual, -np.maximum(0.0, v - e_floor), where=has_v & ~has_e)
    return Pairs(ids, e, v, residual, (has_e | has_v) & (ids != NO_ID), both)


def mae_k(pairs: Pairs) -> float:
    """Mean absolute residual, nats, >= 0; NaN without a cell. Reads easily; deep logprobs' noise dominates it."""
    return float(np.abs(pairs.residual[pairs.used]).mean()) if pairs.used.any() else float("nan")


def max_abs(pairs: Pairs) -> float:
    """Largest absolute residual, nats; NaN without a cell. For engines that are exact (float32 on a CPU)."""
    return float(np.abs(pairs.residual[pairs.used]).max()) if pairs.used.any() else float("nan")


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

    The depth of a cell is e, or v where the artifact lacks the token. Blind to a text that another model wrote and
    the right one scored. Calibrated scales of other prompts or another depth range mislead it.
    """
    if not pairs.used.any():
        return float("nan")
    depth = np.where(np.isnan(pairs.e), pairs.v, pairs.e)[pairs.used]
    scale = np.asarray(sigma.scales)[np.searchsorted(np.asarray(sigma.edges), depth, side="right")]
    z = pairs.residual[pairs.used] / scale
    return float(np.log1p(z * z / 4.0).mean())


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
    depth = np.where(np.isnan(pairs.e), np.nan_to_num(pairs.v), pairs.e)
    scale = np.asarray(sigma.scales)[np.searchsorted(np.asarray(sigma.edges), depth, side="right")]
    terms = np.where(pairs.used, np.log1p((pairs.residual / scale) ** 2 / 4.0), 0.0)
    count = pairs.used.sum(axis=1)
    return np.where(count > 0, terms.sum(axis=1) / np.maximum(count, 1), np.nan)
