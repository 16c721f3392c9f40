"""Which tokens the claimed sampler can draw at each position, and with what probability.

vLLM's order: temperature, then min-p, then top-k (ties at the cut are kept), then top-p over what is left. A record
lists
only the best tokens of a position, so a token is *surely kept*, *surely cut*, or neither; the mass of unlisted tokens
after temperature lies between bounds. Nothing is extrapolated.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from logproof.verify.artifact import Sampling
from logproof.verify.columns import Columns, Floats, Ids, Mask, floor, log_rest

GREEDY_BELOW = 1e-5
"""Temperatures below it are greedy, as vLLM takes them."""


MASS_SLACK = 1e-6
"""Rounding of an engine's float32 sums of probabilities, as a share."""


class Sampler(msgspec.Struct, frozen=True):
    """What is done to a distribution before the draw. top_k 0, top_p 1, min_p 0 are off."""

    temperature: float
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    @property
    def greedy(self) -> bool:
        """Whether the best token is taken."""
        return self.temperature < GREEDY_BELOW

    @property
    def plain(self) -> bool:
        """Whether raw and processed logprobs are the same numbers."""
        return self.temperature == 1.0 and self.top_k == 0 and self.top_p == 1.0 and self.min_p == 0.0


def claimed(sampling: Sampling, mode: str) -> Sampler | str:
    """The sampler to replay on logprobs of this mode, or why there is none.

    Processed logprobs are after temperature and cuts already, constrained ones after a grammar's mask. Penalties,
    biases, masks and grammars change the logits before raw logprobs are taken on some engines and after on others, so
    with them raw logprobs do not give the draw.
    """
    leaves = (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p)
    temperature, top_k, top_p, min_p = leaves
    if temperature is None or top_k is None or top_p is None or min_p is None:
        return "temperature, top_k, top_p or min_p is unresolved"
    bent = bending(sampling, mode)
    if mode == "processed":
        return Sampler(temperature if temperature < GREEDY_BELOW else 1.0)
    if mode not in ("raw", "constrained"):
        return "the logprobs' meaning is unknown"
    if bent:
        return f"{bent[0]} bends the distribution that is drawn from"
    return Sampler(temperature, top_k, top_p, min_p)


_NEUTRAL: dict[str, tuple[object, ...]] = {
    "frequency_penalty": (0.0,),
    "presence_penalty": (0.0,),
    "repetition_penalty": (1.0,),
    "logit_bias": ({},),
    "bad_words": ((),),
    "allowed_ids": ((),),
    "min_tokens": (0,),
    "structured_output": ("",),
}


def bending(sampling: Sampling, mode: str = "raw") -> tuple[str, ...]:
    """Leaves that change the distribution beyond temperature and cuts, or are unresolved and might.

    In constrained logprobs a grammar is there already, in processed ones all of them are.
    """
    if mode == "processed":
        return ()
    bent = tuple(name for name, neutral in _NEUTRAL.items() if getattr(sampling, name) not in neutral)
    inside = mode == "constrained" and sampling.structured_output is not None
    return tuple(name for name in bent if not (inside and name == "structured_output"))


class Support(msgspec.Struct, frozen=True, eq=False):
    """The drawn-from distribution of n positions. Cells [n, w + 1]: row entries, then the sampled token if apart.

    ids: int64. scores: logprob / temperature, -inf in empty cells. kept, cut: surely in, surely out. x: column of the
    sampled token, int64 [n], -1 where its logprob is unknown.
    log_z_low, log_z_high: bounds of the log of the summed exp(scores) of all kept tokens, float64 [n].
    """

    ids: Ids
    scores: Floats
    kept: Mask
    cut: Mask
    x: Ids
    log_z_low: Floats
    log_z_high: Floats

    def sampled_cut(self) -> Mask:
        """bool [n]: the sampled token surely cannot be drawn."""
        rows = np.arange(len(self.x))
        return np.asarray((self.x >= 0) & self.cut[rows, self.x], np.bool_)

    def sampled_scores(self) -> Floats:
        """float64 [n], NaN where the sampled token's logprob is unknown."""
        rows = np.arange(len(self.x))
        return np.where(self.x >= 0, self.scores[rows, self.x], np.nan)


def support(columns: Columns, sampler: Sampler, *, slack: float = 0.0, vocab_size: int | None = None) -> Support:
    """The support of raw (or already processed) rows under a sampler that is not greedy.

    slack: how far a logprob may be off, nats: a token whose fate a change of that size decides is neither kept nor
    cut. vocab_size: tells how many tokens are unlisted. Raises ValueError for a greedy sampler.
    """
    if sampler.greedy:
        raise ValueError("a greedy sampler has no support; sampling.greedy_gaps judges it")
    ids, logprobs = columns.entries
    scores = logprobs / sampler.temperature
    margin = 2.0 * slack / sampler.temperature
    tail, least_tail = _tail(columns, sampler, margin, vocab_size), _least_tail(columns, sampler, margin, vocab_size)
    kept, cut = _cuts_unsorted(scores, sampler, margin, (least_tail, tail))
    real = np.isfinite(scores)
    same = (ids == columns.sampled_ids[:, None]) & real
    kept = kept & real & ~_rank_unknown(columns, sampler, same)
    cut = cut & real
    mass = np.exp(scores)
    lowest_cut = (cut & ~same).any(axis=1)
    with np.errstate(divide="ignore"):
        low = np.log((mass * kept).sum(axis=1) + (least_tail if sampler.top_p == 1.0 else 0.0))
        high = np.log((mass * ~cut).sum(axis=1) + np.where(lowest_cut, 0.0, tail))
    return Support(ids, scores, kept, cut, np.where(same.any(axis=1), same.argmax(axis=1), -1), low, high)


def _cuts_unsorted(scores: Floats, sampler: Sampler, margin: float, tails: tuple[Floats, Floats]) -> tuple[Mask, Mask]:
    """`_cuts` of rows in any order; rows that come sorted, as nearly all do, are taken as they are."""
    if bool((scores[:, 1:] <= scores[:, :-1]).all()):
        return _cuts(scores, sampler, margin, *tails)
    order = np.argsort(-scores, axis=1, kind="stable")
    kept, cut = _cuts(np.take_along_axis(scores, order, 1), sampler, margin, *tails)
    back = np.argsort(order, axis=1)
    return np.take_along_axis(kept, back, 1), np.take_along_axis(cut, back, 1)


def _rank_unknown(columns: Columns, sampler: Sampler, same: Mask) -> Mask:
    """Cells of a sampled token below all others where fewer others than top_k are listed: its rank may be any."""
    others = columns.present & (columns.ids != columns.sampled_ids[:, None])
    open_rank = (others.sum(axis=1) < sampler.top_k) & (columns.sampled_logprobs < columns.least)
    return np.asarray(same & open_rank[:, None], np.bool_)


def _tail(columns: Columns, sampler: Sampler, margin: float, vocab_size: int | None) -> Floats:
    """Upper bound of the summed exp(score) of unlisted tokens that min-p and top-k may keep, float64 [n].

    Each is at most exp(floor / T); together they hold the mass that is left over. Powers below 1 of probabilities are
    largest when spread evenly, powers above 1 when gathered under the floor.
    """
    low, t = floor(columns), sampler.temperature
    others = columns.present & (columns.ids != columns.sampled_ids[:, None])
    count = np.inf if vocab_size is None else np.maximum(vocab_size - columns.present.sum(axis=1), 0)
    rest = np.exp(log_rest(columns, MASS_SLACK + np.expm1(margin * t)))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        spread = np.where(np.isinf(count), np.inf, count ** (1.0 - 1.0 / t) * rest ** (1.0 / t))
    by_mass = rest * np.exp(low * (1.0 / t - 1.0)) if t <= 1.0 else np.nan_to_num(spread, nan=0.0, posinf=np.inf)
    bound = np.minimum(by_mass, count * np.exp(low / t))
    full = others.sum(axis=1) >= sampler.top_k
    if sampler.top_k > 0:
        ranked = -np.sort(-np.where(others, columns.logprobs, -np.inf), axis=1) / t
        kth = ranked[:, min(sampler.top_k, columns.width) - 1] if columns.width else np.full(len(low), -np.inf)
        bound = np.where(full & (low / t < kth - margin), 0.0, bound)
    if sampler.min_p > 0.0:
        best = np.where(columns.present, columns.logprobs, -np.inf).max(axis=1, initial=-np.inf) / t
        bound = np.where(low / t < best + np.log(sampler.min_p) - margin, 0.0, bound)
    return np.asarray(bound, np.float64)


def _least_tail(columns: Columns, sampler: Sampler, margin: float, vocab_size: int | None) -> Floats:
    """Lower bound of the summed exp(score) of unlisted tokens, float64 [n]; 0 where min-p or top-k may cut them all."""
    t, error = sampler.temperature, MASS_SLACK + np.expm1(margin * sampler.temperature)
    rest = np.maximum(np.exp(log_rest(columns, error)) - 2.0 * error, 0.0)
    if sampler.top_k > 0 or sampler.min_p > 0.0:
        return np.zeros(len(rest))
    if t >= 1.0:
        return np.asarray(rest * np.exp(floor(columns) * (1.0 / t - 1.0)), np.float64)
    if vocab_size is None:
        return np.zeros(len(rest))
    count = np.maximum(vocab_size - columns.present.sum(axis=1), 1)
    return np.asarray(count ** (1.0 - 1.0 / t) * rest ** (1.0 / t), np.float64)


def _cuts(ranked: Floats, sampler: Sampler, margin: float, least_tail: Floats, tail: Floats) -> tuple[Mask, Mask]:
    """Surely kept and surely cut for scores sorted downwards [n, m]. tails: bounds of unlisted summed exp(score)."""
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
        keep, drop = _top_p(ranked, kept, cut, sampler.top_p, margin, (least_tail, tail))
        kept, cut = kept & keep, cut | drop
    return kept, cut


def _top_p(
    ranked: Floats, kept: Mask, cut: Mask, top_p: float, margin: float, tails: tuple[Floats, Floats]
) -> tuple[Mask, Mask]:
    """A token stays while the share of mass before it is below top_p; the order among near-equals is open.

    kept, cut: surely kept and surely cut by what came before; the mass of tokens that are neither is open too.
    """
    mass = np.exp(ranked)
    most_mass, least_mass = np.where(cut, 0.0, mass), np.where(kept, mass, 0.0)
    least = _running(least_mass, _count_above(ranked, ranked + margin, "left"))
    most = _running(most_mass, _count_above(ranked, ranked - margin, "right")) - most_mass
    wobble = 1.0 + np.expm1(margin) + MASS_SLACK
    total = most_mass.sum(axis=1, keepdims=True) + tails[1][:, None]
    drop = least >= top_p * wobble * total
    keep = most * wobble < top_p * (least_mass.sum(axis=1, keepdims=True) + tails[0][:, None])
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
