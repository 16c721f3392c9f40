"""Which tokens the claimed sampler can draw at each position, and with what probability.

vLLM's order: temperature, then min-p, then top-k (ties at the cut are kept), then top-p over what is left. A record
lists only the best tokens of a position, so a token is *surely kept*, *surely cut*, or neither; the mass of unlisted
tokens after temperature lies between bounds. Nothing is extrapolated.
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import msgspec
import numpy as np

from logproof.verify.artifact.columns import Columns, Floats, Ids, Mask, rest, row_sums
from logproof.verify.stats.sampler import Sampler

MASS_SLACK = 1e-6
"""Rounding of an engine's float32 sums of probabilities, as a share."""


class Unlisted(msgspec.Struct, frozen=True, eq=False, dict=True):
    """What is known of the tokens that a row does not list.

    margin: by how much two scores may be off against each other. vocab_size: None where it is not known. shift:
    float64 [n], what was taken off the scores of each row, so that the exp of its best does not underflow.
    """

    columns: Columns
    sampler: Sampler
    margin: float
    vocab_size: int | None
    shift: Floats

    @cached_property
    def error(self) -> float:
        """Error of a row's listed mass, as a share."""
        return MASS_SLACK + float(np.expm1(self.margin * self.sampler.temperature))

    @cached_property
    def most(self) -> Floats:
        """Upper bound of the summed exp(score) of unlisted tokens that min-p and top-k may keep, float64 [n].

        Each is at most exp(floor / T); together they hold the mass that is left over. Powers below 1 of probabilities
        are largest when spread evenly, powers above 1 when gathered under the floor.
        """
        low, t = self.columns.floor, self.sampler.temperature
        count = np.inf if self.vocab_size is None else np.maximum(self.vocab_size - self.columns.counts, 0)
        mass = rest(self.columns, self.error)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            steep = mass * np.exp(low * (1.0 / t - 1.0) - self.shift)
            spread = steep if t <= 1.0 else count ** (1.0 - 1.0 / t) * mass ** (1.0 / t)
            most = np.fmin(spread, count * np.exp(low / t - self.shift))
        return np.where(self._all_cut(low / t), 0.0, most)

    def _all_cut(self, highest: Floats) -> Mask:
        """bool [n]: min-p or top-k surely cut every token whose score is at most `highest`."""
        c, k, t = self.columns, self.sampler.top_k, self.sampler.temperature
        gone = np.zeros(len(c), np.bool_)
        if 0 < k <= c.width:
            column = k - 1 + ((c.place >= 0) & (c.place < k))
            kth = np.column_stack((c.logprobs, np.full(len(c), -np.inf)))[np.arange(len(c)), column] / t
            gone |= (c.counts - c.listed >= k) & (highest < kth - self.margin)
        if self.sampler.min_p > 0.0 and c.width:
            gone |= highest < c.logprobs[:, 0] / t + np.log(self.sampler.min_p) - self.margin
        return gone

    @cached_property
    def least(self) -> Floats:
        """Lower bound of that sum, float64 [n]; 0 where min-p or top-k may cut them all."""
        c, t = self.columns, self.sampler.temperature
        if self.sampler.top_k > 0 or self.sampler.min_p > 0.0 or (t < 1.0 and self.vocab_size is None):
            return np.zeros(len(c))
        mass = np.maximum(rest(c, self.error) - 2.0 * self.error, 0.0)
        if t >= 1.0:
            return np.asarray(mass * np.exp(c.floor * (1.0 / t - 1.0)), np.float64)
        count = np.maximum((self.vocab_size or 0) - c.counts, 1)
        with np.errstate(divide="ignore"):
            return np.asarray(np.exp((1.0 - 1.0 / t) * np.log(count) + np.log(mass) / t - self.shift), np.float64)


class Support(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The drawn-from distribution of n positions. Cells [n, w + 1]: row entries, then the sampled token if apart.

    ids: int64. scores: logprob / temperature, below temperature 1 less the row's best, -inf in empty cells. kept, cut:
    surely in, surely out. x: column of the sampled token, int64 [n], -1 where its logprob is unknown.
    """

    ids: Ids
    scores: Floats
    kept: Mask
    cut: Mask
    x: Ids
    unlisted: Unlisted

    @cached_property
    def sampled_cut(self) -> Mask:
        """bool [n]: the sampled token surely cannot be drawn."""
        rows = np.arange(len(self.x))
        return np.asarray((self.x >= 0) & self.cut[rows, self.x], np.bool_)

    @cached_property
    def weights(self) -> Floats:
        """exp of the scores."""
        if self.unlisted.sampler.temperature == 1.0:
            return self.unlisted.columns.probabilities
        return np.asarray(np.exp(self.scores), np.float64)

    @cached_property
    def log_z_low(self) -> Floats:
        """Lower bound of the log of the summed exp(scores) of all kept tokens, float64 [n]."""
        more = self.unlisted.least if self.unlisted.sampler.top_p == 1.0 else 0.0
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(row_sums(np.where(self.kept, self.weights, 0.0)) + more), np.float64)

    @cached_property
    def log_z_high(self) -> Floats:
        """Upper bound of the same. Where a token is cut that is not listed for being drawn, so are all unlisted."""
        tail = np.where(self.cut.any(axis=1) & ~self.sampled_cut, 0.0, self.unlisted.most)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(row_sums(np.where(self.cut, 0.0, self.weights)) + tail), np.float64)


def support(columns: Columns, sampler: Sampler, *, slack: float = 0.0, vocab_size: int | None = None) -> Support:
    """The support of raw (or already processed) rows under a sampler that is not greedy.

    slack: how far a logprob may be off, nats: a token whose fate a change of that size decides is neither kept nor
    cut. vocab_size: tells how many tokens are unlisted. Raises ValueError for a greedy sampler.
    """
    if sampler.greedy:
        raise ValueError("a greedy sampler has no support; plausibility.greedy_gaps judges it")
    ids, logprobs = columns.entries
    scores = logprobs if sampler.temperature == 1.0 else logprobs / sampler.temperature
    shift = np.zeros(len(columns))
    if sampler.temperature < 1.0:
        best = scores.max(axis=1, initial=-np.inf)
        shift = np.where(np.isfinite(best), best, 0.0)
        scores = scores - shift[:, None]
    unlisted = Unlisted(columns, sampler, 2.0 * slack / sampler.temperature, vocab_size, shift)
    real = np.isfinite(scores)
    kept, cut = _cuts_unsorted(scores, unlisted)
    kept, cut = kept & real, cut & real
    open_rank = np.flatnonzero(_rank_unknown(columns, sampler))
    kept[open_rank, columns.sampled_cell[open_rank]] = False
    return Support(ids, scores, kept, cut, columns.sampled_cell, unlisted)


def _cuts_unsorted(scores: Floats, unlisted: Unlisted) -> tuple[Mask, Mask]:
    """`_cuts` of rows in any order; rows that come sorted, as nearly all do, are taken as they are."""
    if bool((scores[:, 1:] <= scores[:, :-1]).all()):
        return _cuts(scores, unlisted)
    order = np.argsort(-scores, axis=1, kind="stable")
    kept, cut = _cuts(np.take_along_axis(scores, order, 1), unlisted)
    back = np.argsort(order, axis=1)
    return np.take_along_axis(kept, back, 1), np.take_along_axis(cut, back, 1)


def _rank_unknown(columns: Columns, sampler: Sampler) -> Mask:
    """bool [n]: the sampled token is below all others and fewer others than top_k are listed: its rank may be any."""
    others = columns.counts - columns.listed
    return np.asarray((others < sampler.top_k) & (columns.sampled_logprobs < columns.least), np.bool_)


def _cuts(ranked: Floats, unlisted: Unlisted) -> tuple[Mask, Mask]:
    """Surely kept and surely cut for scores sorted downwards [n, m]."""
    sampler, margin = unlisted.sampler, unlisted.margin
    kept, cut = np.ones(ranked.shape, np.bool_), np.zeros(ranked.shape, np.bool_)
    if sampler.min_p > 0.0:
        line = ranked[:, :1] + np.log(sampler.min_p)
        kept &= ranked >= line + margin
        cut |= ranked < line - margin
    if 0 < sampler.top_k <= ranked.shape[1]:
        kth = ranked[:, sampler.top_k - 1 : sampler.top_k]
        following = ranked[:, sampler.top_k : sampler.top_k + 1] if sampler.top_k < ranked.shape[1] else None
        clear = np.zeros(kth.shape, np.bool_) if following is None else following < kth - margin
        kept &= np.where(clear | (margin == 0.0), ranked >= kth, ranked >= kth + margin)
        cut |= ranked < kth - margin
    if sampler.top_p < 1.0:
        keep, drop = _top_p(ranked, kept, cut, unlisted)
        kept, cut = kept & keep, cut | drop
    return kept, cut


def _top_p(ranked: Floats, kept: Mask, cut: Mask, unlisted: Unlisted) -> tuple[Mask, Mask]:
    """A token stays while the share of mass before it is below top_p; the order among near-equals is open.

    kept, cut: surely kept and surely cut by what came before; the mass of tokens that are neither is open too.
    """
    mass, margin, top_p = np.exp(ranked), unlisted.margin, unlisted.sampler.top_p
    most_mass, least_mass = np.where(cut, 0.0, mass), np.where(kept, mass, 0.0)
    least = _running(least_mass, _count_above(ranked, ranked + margin, "left"))
    most = _running(most_mass, _count_above(ranked, ranked - margin, "right")) - most_mass
    wobble = 1.0 + np.expm1(margin) + MASS_SLACK
    total = most_mass.sum(axis=1, keepdims=True) + unlisted.most[:, None]
    drop = least >= top_p * wobble * total
    keep = most * wobble < top_p * (least_mass.sum(axis=1, keepdims=True) + unlisted.least[:, None])
    return keep, np.logical_and(drop, np.isfinite(ranked))


def _running(mass: Floats, count: Ids) -> Floats:
    """Per cell, the mass of the first `count` cells of its row."""
    sums = np.concatenate((np.zeros((len(mass), 1)), np.cumsum(mass, axis=1)), axis=1)
    return np.take_along_axis(sums, count, 1)


def _count_above(ranked: Floats, line: Floats, side: Literal["left", "right"]) -> Ids:
    """Per cell, how many scores of its row (sorted downwards) are above the line; with "right", at or above it."""
    depth = 1e6
    rows = (np.arange(len(ranked)) * 4.0 * depth)[:, None]
    flat = (np.minimum(-ranked, depth) + rows).ravel()
    where = np.searchsorted(flat, (np.clip(-line, -depth, depth) + rows).ravel(), side=side)
    counts = where.reshape(ranked.shape) - (np.arange(len(ranked)) * ranked.shape[1])[:, None]
    return np.asarray(np.clip(counts, 0, ranked.shape[1]), np.int64)
