"""S2 and S4: draw again with the claimed seed, and see whether the recorded token wins.

An engine that samples by Gumbel-max takes the best of logit / T + noise(seed, step, token). The noise is a pure
function (sampler_profiles.py), so a record of logprobs and a seed fix the token, up to rounding near ties.
* S2 uses the verifier's logprobs: honest engines of equal weights miss at the rate of their rounding noise.
* S4 uses the artifact's own logprobs, needs no model, and is exact: one violation is a contradiction in the record.
Both are one-sided: only listed tokens that the sampler surely keeps are rivals, so a short list cannot accuse.
Cannot see: seeds that the executor chose to fit (grinding), greedy sampling (no noise), profiles that are wrong for
the engine, speculative decoding. S4 cannot see a self-consistent wrong model.
"""

from __future__ import annotations

import msgspec
import numpy as np

from logproof.verify.artifact.columns import NO_ID, Columns, Floats, Ids, Mask
from logproof.verify.stats.drawable_tokens import Support, support
from logproof.verify.stats.sampler import Sampler
from logproof.verify.stats.sampler_profiles import Profile, gumbel

ROUNDING = 1e-6
"""Error of a float32 logprob that always counts as none, nats."""
CAP = 0.5
"""Nats up to which a margin counts in the mean: honest margins beyond are so rare that more would only add spread."""


class Redraw(msgspec.Struct, frozen=True, eq=False):
    """The draw repeated at n positions.

    margin: by how much the best surely kept rival beats the sampled token in logit / T + noise, float64 [n], at least
    0, NaN where the sampled token's logprob is unknown. out: bool [n], the sampled token is surely outside the support.
    rivals: int64 [n], id of the best rival, NO_ID where there is none. tolerance: margins up to it are rounding.
    """

    margin: Floats
    out: Mask
    rivals: Ids
    tolerance: float

    @property
    def known(self) -> Mask:
        """bool [n]: positions that were judged."""
        return np.asarray(~np.isnan(self.margin), np.bool_)

    @property
    def mismatch(self) -> Mask:
        """bool [n]: another token wins beyond tolerance, or the sampled one cannot be drawn at all."""
        return np.asarray((np.nan_to_num(self.margin) > self.tolerance) | self.out, np.bool_)

    def head(self, n: int) -> Redraw:
        """Its first n positions."""
        return Redraw(self.margin[:n], self.out[:n], self.rivals[:n], self.tolerance)

    def capped(self, cap: float = CAP) -> float:
        """Mean margin, each at most `cap` (out of support counts `cap`); 0..cap; NaN without judged positions."""
        if not self.known.any():
            return float("nan")
        return float(np.where(self.out, cap, np.minimum(self.margin, cap))[self.known].mean())


def redraw(
    columns: Columns,
    sampler: Sampler,
    chosen: Profile,
    seed: int,
    prompt_tokens: int,
    *,
    step: float = 0.0,
    slack: float | None = None,
    vocab_size: int | None = None,
) -> Redraw:
    """Repeat the draw on these logprobs. step: largest error of a logprob that is no margin, nats.

    slack: largest error of one where it decides what the cuts leave; step unless given.

    Raises UsageError for a profile without a replay, ValueError for a greedy sampler.
    """
    slack = (step if slack is None else slack) + ROUNDING
    kept = support(columns, sampler, slack=slack, vocab_size=vocab_size)
    noise = gumbel(chosen, seed, kept.ids, prompt_tokens)
    return _margins(kept, noise, chosen.tolerance / sampler.temperature + 2.0 * step / sampler.temperature)


def _margins(kept: Support, noise: Floats, tolerance: float) -> Redraw:
    rows = np.arange(len(kept.x))
    noised = kept.scores + noise
    own = np.where(kept.x >= 0, noised[rows, kept.x], np.nan)
    noised = np.where(kept.kept, noised, -np.inf)
    noised[rows, kept.x] = -np.inf
    best = noised.argmax(axis=1)
    lead = noised[rows, best]
    rivals = np.where(np.isfinite(lead), kept.ids[rows, best], NO_ID)
    return Redraw(np.maximum(0.0, lead - own), kept.sampled_cut, rivals, tolerance)


MARGIN_EDGES = (0.0, 0.03, 0.06, 0.1, 0.15, 0.25, 0.5, 1.0)
"""Upper edges of margin bins 0 .. 7; bin 8 is a larger margin, bin 9 out of support."""
BINS = len(MARGIN_EDGES) + 2


def margin_bins(draw: Redraw) -> Ids:
    """Bin of each judged position, int64: 0 is no margin beyond tolerance, the last out of support."""
    margin = np.where(draw.margin <= draw.tolerance, 0.0, draw.margin)
    bins = np.searchsorted(MARGIN_EDGES, margin, side="left")
    return np.asarray(np.where(draw.out, BINS - 1, bins)[draw.known], np.int64)


def first_violation(draw: Redraw) -> int | None:
    """S4: the first position whose recorded token the record itself contradicts, or None."""
    where = np.flatnonzero(draw.mismatch & draw.known)
    return int(where[0]) if len(where) else None
