"""What the two peers say about the same records: one number a sequence, larger is more suspicious.

Gonka: its validator's distance (logproof.verify.stats.gonka), with its own bounds and with one calibrated here.

token-difr 0.1.2 (common.py, `_verify_vllm_gumbel_max` and `compute_metrics_summary`; MIT): for each token the best of
logit + T * noise less the token's own, and its sequence score is the mean margin; a token that the claimed cut filters
has an infinite margin and is reported as a rate. It sets no threshold. Its analysis caps margins, and so do we at CAP,
infinite ones included, because a mean without them would let the worst tokens pass. Two noises are tried:
* `difr_shipped`: the exponential race of its code, from torch's generator. Needs torch. vLLM 0.32 on a CPU draws
  otherwise, so honest tokens look foreign to it.
* `difr`: the same statistic with this engine's own noise. This is a gift: the package has no such profile.
"""

from __future__ import annotations

import numpy as np
from arrays import TOP_K, VOCABULARY, Record

from logproof.verify.artifact.columns import Columns, Floats, Mask
from logproof.verify.stats import gonka
from logproof.verify.stats.sampler_profiles import gumbel, profile

CAP = 0.5
GONKA_WIDTH = 5
GONKA_BOUNDS = {"gonka, own bound 0.0351": 0.0351, "gonka, own bound 0.01": 1.0 - gonka.GO_PASS}
"""The bound of its chain for 4-bit weights of a large model, and the one its validator's code falls back to."""


def gonka_own(record: Record) -> float:
    """The distance at the width that Gonka uses, 0 and more."""
    return gonka.go(record.own.narrow(GONKA_WIDTH), record.replay.narrow(GONKA_WIDTH))


def gonka_wide(record: Record) -> float:
    """The distance with all that our record holds."""
    width = record.own.width
    return gonka.go(record.own, record.replay.narrow(width))


def difr(record: Record) -> float:
    """Mean capped margin under the engine's own noise, 0 .. CAP."""
    noise = gumbel(profile("v1-cpu-splitmix"), record.seed, record.replay.ids, len(record.prompt))
    return _mean_margin(record.replay, noise)


def difr_shipped(record: Record) -> float:
    """Mean capped margin under the package's own noise, 0 .. CAP."""
    import torch

    generator = torch.Generator().manual_seed(record.seed)
    rows = [torch.empty(VOCABULARY).exponential_(generator=generator).numpy() for _ in range(len(record.replay))]
    drawn = np.take_along_axis(np.stack(rows), np.maximum(record.replay.ids, 0), 1).astype(np.float64)
    return _mean_margin(record.replay, -np.log(drawn))


def _mean_margin(rows: Columns, noise: Floats) -> float:
    """T is 1 and top-k cuts at TOP_K, ties kept: both are claimed by every record here."""
    kept = _kept(rows)
    scores = np.where(kept, rows.logprobs + noise, -np.inf)
    same = (rows.ids == rows.sampled_ids[:, None]) & kept
    own = np.where(same, scores, -np.inf).max(axis=1)
    return float(np.minimum(scores.max(axis=1) - own, CAP).mean())


def _kept(rows: Columns) -> Mask:
    return np.asarray(rows.logprobs >= rows.logprobs[:, TOP_K - 1 : TOP_K], np.bool_)
