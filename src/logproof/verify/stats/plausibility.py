"""S2g, S3: are these tokens plausible draws, without knowing the seed?

All read a record of logprobs (usually the verifier's) and the sampled ids. They see other temperatures, other cuts,
and other writers of clearly other taste. They are blind to weight changes that keep the distribution nearly the same
(int8, fp8), and weak for low-entropy texts. Numeric noise makes the nominal null slightly wrong over thousands of
tokens: calibrate.
"""

from __future__ import annotations

import msgspec
import numpy as np

from logproof.verify.artifact.columns import Columns, Floats, Ids, Mask, row_sums
from logproof.verify.stats.drawable_tokens import Support, support
from logproof.verify.stats.evalue import log_sum_exp
from logproof.verify.stats.sampler import Sampler


def greedy_gaps(columns: Columns) -> Floats:
    """S2g: best listed logprob less the sampled token's, nats, float64 [n]; 0 for the best; NaN where unreported.

    Under a greedy claim an honest token lies within rounding of the best (one bfloat16 step, 1/8 .. 1/32 nat): ties are
    a set, not an order. Long flat regions hide a foreign writer.
    """
    best = np.where(columns.present, columns.logprobs, -np.inf).max(axis=1, initial=-np.inf)
    best = np.fmax(best, columns.sampled_logprobs)
    return np.asarray(best - columns.sampled_logprobs, np.float64)


class Surprise(msgspec.Struct, frozen=True):
    """S3a. z: summed surprise less entropy over its standard deviation, near N(0, 1) when drawn as claimed.

    entropy: summed entropy, nats. tokens: positions judged. out: positions outside the support, not in z.
    open: positions whose distribution the record does not fix to 1 %, not in z.
    """

    z: float
    entropy: float
    tokens: int
    out: int
    open: int


class Outcomes(msgspec.Struct, frozen=True, eq=False):
    """Coarse-grained draws: the best entries of each row, then one outcome for everything else.

    Of the u usable positions: log_q: float64 [u, m + 1], -inf where cut; drawn: int64 [u], the outcome that happened.
    Of all n positions: usable, out: bool [n], the latter drawn outside the support.
    """

    log_q: Floats
    drawn: Ids
    usable: Mask
    out: Mask

    @property
    def own(self) -> Floats:
        """Log-probability of the outcomes that happened, float64 [u]."""
        return np.asarray(self.log_q[np.arange(len(self.drawn)), self.drawn], np.float64)


OPEN_MASS = 0.01
"""Positions whose normaliser is known no better than this share are left out."""
NO_MASS = 1e-6
"""Mass below what sums of float32 probabilities resolve; taken as none."""


def outcomes(columns: Columns, sampler: Sampler, vocab_size: int | None = None) -> Outcomes:
    """The claimed distribution on the best tokens and "any other". Raises ValueError for a greedy sampler.

    The last column is left out: wires widen a row by the sampled token or put it in place of the last entry, and
    outcomes may not depend on what was drawn.
    """
    kept = support(columns, sampler, vocab_size=vocab_size)
    best = max(columns.width - 1, 0)
    log_z, gap = _log_z(columns, sampler, kept)
    log_q = np.empty((len(columns), best + 1))
    np.subtract(kept.scores[:, :best], log_z[:, None], out=log_q[:, :best])
    log_q[:, :best][kept.cut[:, :best]] = -np.inf
    left = 1.0 - row_sums(np.exp(log_q[:, :best]))
    log_q[:, best] = np.where(left < NO_MASS, -np.inf, np.log(np.maximum(left, NO_MASS)))
    drawn = np.where((columns.place >= 0) & (columns.place < best), columns.place, best)
    known = ~np.isnan(columns.sampled_logprobs)
    out = known & (kept.sampled_cut | np.isneginf(log_q[np.arange(len(columns)), drawn]))
    usable = known & (gap <= OPEN_MASS) & ~out
    rows = np.flatnonzero(usable)
    return Outcomes(log_q.take(rows, axis=0), drawn.take(rows), usable, out)


def _log_z(columns: Columns, sampler: Sampler, kept: Support) -> tuple[Floats, Floats]:
    """Log normaliser and its open share. At temperature 1 without cuts it is 0, exactly."""
    if sampler.plain:
        return np.zeros(len(columns)), np.zeros(len(columns))
    return kept.log_z_high, np.where(np.isfinite(kept.log_z_low), kept.log_z_high - kept.log_z_low, np.inf)


def surprise(drawn: Outcomes) -> Surprise:
    """S3a over usable positions. z is NaN where the summed variance is 0 (nothing was uncertain)."""
    p = np.exp(drawn.log_q)
    cost = np.where(p > 0.0, -drawn.log_q, 0.0)
    entropy = np.einsum("ij,ij->i", p, cost)
    variance = np.einsum("ij,ij,ij->", p, cost, cost) - entropy @ entropy
    spread = float(np.sqrt(max(0.0, variance)))
    z = float((-drawn.own - entropy).sum() / spread) if spread > 0.0 else float("nan")
    tokens, out = len(drawn.drawn), int(drawn.out.sum())
    return Surprise(z, float(entropy.sum()), tokens, out, len(drawn.usable) - tokens - out)


TEMPERS = (0.3, 0.5, 0.7, 0.85, 0.95, 1.05, 1.15, 1.3, 1.5, 2.0)
"""Temperatures of the alternatives, as multiples of the claimed one."""


def tempered_log_e(drawn: Outcomes) -> Floats:
    """S3b: log of the running e-process against "drawn as claimed", float64 [m] over usable positions.

    The mean over TEMPERS of the product of q_c(x) / q(x), q_c the claimed distribution at c times its temperature
    (its unlisted tokens taken to be as likely as the least listed one: an alternative need not be exact).
    A martingale of mean 1 if the tokens were drawn as claimed, so it exceeds 1/a at any time with chance at most a.
    bfloat16 noise inflates it slightly.
    """
    own = drawn.own
    if len(own) == 0:
        return np.zeros(0)
    listed, other = np.ascontiguousarray(drawn.log_q[:, :-1].T, np.float32), drawn.log_q[:, -1]
    least = np.where(np.isneginf(listed), 0.0, listed).min(axis=0, initial=0.0)
    powers = 1.0 / np.asarray(TEMPERS)[:, None]
    others = other + least * (powers - 1.0)
    raised = listed * powers.astype(np.float32)[:, None]
    totals = np.exp(raised, out=raised).sum(axis=1) + np.exp(others)
    chosen = np.where(drawn.drawn == len(listed), others, own * powers)
    runs = np.cumsum(chosen - np.log(totals) - own, axis=1)
    return np.asarray(log_sum_exp(runs, axis=0) - np.log(len(TEMPERS)), np.float64)
