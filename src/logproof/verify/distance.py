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

from logproof.verify.columns import Columns, Floats, Ids, Mask, Matches, matches, true_cells


class Pairs(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Compared entries of n positions, sampled tokens included; flat arrays, one element a token and position.

    matched: the cells of both sides' `entries` that hold the same token. e, v, residual, drawn: [q], of these: both
    logprobs in nats, e - v, whether it is the artifact's sampled token. lone_rows, lone_depths, lone_residual: of
    tokens that one side lists above the other's floor: position, logprob, and by how much above, negative where only
    the verifier lists it.
    """

    n: int
    matched: Matches
    e: Floats
    v: Floats
    residual: Floats
    drawn: Mask
    lone_rows: Ids
    lone_depths: Floats
    lone_residual: Floats

    @cached_property
    def residuals(self) -> Floats:
        """All residuals, matched ones first, float64 [cells], nats."""
        return np.concatenate((self.residual, self.lone_residual))

    @cached_property
    def depths(self) -> Floats:
        """The logprob at which each residual was found: e, or v where the artifact lacks the token."""
        return np.concatenate((self.e, self.lone_depths))

    @cached_property
    def positions(self) -> Ids:
        """The position of each residual."""
        return np.concatenate((self.matched.rows, self.lone_rows))

    @cached_property
    def counts(self) -> Ids:
        """Matched entries of each position, at least 1: a divisor."""
        return np.maximum(np.bincount(self.matched.rows, minlength=self.n), 1)

    def row_sums(self, weights: Floats) -> Floats:
        """Sums over the matched entries of each position, float64 [n]."""
        return np.asarray(np.bincount(self.matched.rows, weights, minlength=self.n), np.float64)


def pair(artifact: Columns, verifier: Columns) -> Pairs:
    """Entries of both sides, matched by id. Raises ValueError where the positions differ in number."""
    if len(artifact) != len(verifier):
        raise ValueError(f"{len(artifact)} positions against {len(verifier)}")
    found = matches(artifact.entries[0], verifier.entries[0])
    e, v = artifact.entries[1].take(found.cells[0]), verifier.entries[1].take(found.cells[1])
    mine = _above(artifact, found.cells[0], verifier.floor)
    theirs = _above(verifier, found.cells[1], artifact.floor)
    return Pairs(
        n=len(artifact),
        matched=found,
        e=e,
        v=v,
        residual=e - v,
        drawn=found.left == artifact.sampled_cell.take(found.rows),
        lone_rows=np.concatenate((mine[0], theirs[0])),
        lone_depths=np.concatenate((mine[1], theirs[1])),
        lone_residual=np.concatenate((mine[2], -theirs[2])),
    )


def _above(columns: Columns, matched: Ids, line: Floats) -> tuple[Ids, Floats, Floats]:
    """Entries that are not matched and lie above their position's line: positions, logprobs, and how far above."""
    values = columns.entries[1]
    over = values - line[:, None]
    over.ravel()[matched] = -np.inf
    rows, flat = true_cells(over > 0.0)
    return rows, values.take(flat), over.take(flat)


def mae_k(pairs: Pairs) -> float:
    """Mean absolute residual, nats, >= 0; NaN without a cell. Reads easily; deep logprobs' noise dominates it."""
    return float(np.abs(pairs.residuals).mean()) if len(pairs.residuals) else float("nan")


def max_abs(pairs: Pairs) -> float:
    """Largest absolute residual, nats; NaN without a cell. For engines that are exact (float32 on a CPU)."""
    return float(np.abs(pairs.residuals).max()) if len(pairs.residuals) else float("nan")


def equal_share(pairs: Pairs) -> float:
    """Share of matched entries that are equal to the last bit, 0..1; 0 without any."""
    return float((pairs.residual == 0.0).mean()) if len(pairs.residual) else 0.0


def positions_over(pairs: Pairs, limit: float) -> Ids:
    """Positions, rising, that hold a residual of more than `limit` nats."""
    return np.unique(pairs.positions[np.abs(pairs.residuals) > limit])


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
    depth = np.concatenate([p.e for p in honest])
    size = np.abs(np.concatenate([p.residual for p in honest]))
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
    return float(_terms(pairs, sigma).mean()) if len(pairs.residuals) else float("nan")


def _terms(pairs: Pairs, sigma: Sigma) -> Floats:
    """ln(1 + z**2 / 4) of every residual. The bin is counted, edge by edge: faster than a search in so few edges."""
    edges = np.asarray(sigma.edges, np.float64)[:, None]
    bins = np.asarray((pairs.depths >= edges).sum(axis=0, dtype=np.uint16), np.uint16)
    z = pairs.residuals / np.asarray(sigma.scales, np.float64).take(bins)
    return np.asarray(np.log(1.0 + z * z / 4.0), np.float64)


TAIL_LEAST = 1e-9


def kl_tail(pairs: Pairs) -> float:
    """Mean over positions of KL(e || v) in nats on the tokens both list, with all others as one tail token.

    Tails are at least TAIL_LEAST, which blunts it on peaked rows. Merging tokens can only lower a KL divergence, so
    this is a lower bound of the true one, up to rounding. NaN without positions.
    """
    if pairs.n == 0:
        return float("nan")
    p, q = np.exp(pairs.e), np.exp(pairs.v)
    p_tail = np.maximum(TAIL_LEAST, 1.0 - pairs.row_sums(p))
    q_tail = np.maximum(TAIL_LEAST, 1.0 - pairs.row_sums(q))
    return float((p @ pairs.residual + p_tail @ np.log(p_tail / q_tail)) / pairs.n)


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
    count, lifted = int(pairs.drawn.sum()), float(pairs.residual @ pairs.drawn)
    others = len(pairs.residual) - count
    bias = lifted / count - (float(pairs.residual.sum()) - lifted) / others if count and others else float("nan")
    v, r = _centred(pairs, pairs.v), _centred(pairs, pairs.residual)
    square = float(v @ v)
    return Shape(float(v @ r) / square if square > 0.0 else float("nan"), bias)


def _centred(pairs: Pairs, values: Floats) -> Floats:
    """Values of matched entries less their position's mean."""
    return np.asarray(values - (pairs.row_sums(values) / pairs.counts).take(pairs.matched.rows), np.float64)


def worst_positions(pairs: Pairs, sigma: Sigma) -> Floats:
    """Per position mean of ln(1 + z**2 / 4), float64 [n], NaN where a position carries no cell."""
    count = np.bincount(pairs.positions, minlength=pairs.n)
    total = np.bincount(pairs.positions, _terms(pairs, sigma), minlength=pairs.n)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
