"""How many artifacts a second all statistics take, on one core: 256 positions, 20 entries recorded.

Runs every test of an artifact that needs arrays only (S4, S1 with all its scores, both forms of Gonka's distance, S2,
S3), on noisy pairs of a synthetic model, once against a replay of 20 entries and once of 64. Prints one JSON object a
width, in CPU time of this process; other load on the machine still slows it. The aim is 1,000 artifacts a second.
"""

from __future__ import annotations

import json
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from logproof.verify.artifact.columns import Columns, make_columns
from logproof.verify.stats import distance, distance_table, evalue, plausibility, redraw
from logproof.verify.stats.sampler import Sampler
from logproof.verify.stats.sampler_profiles import profile

POSITIONS, RECORDED, VOCABULARY = 256, 20, 49152
WIDTHS = (20, 64)
ARTIFACTS = 40
SAMPLER = Sampler(1.0, 50)
SPLITMIX = profile("v1-cpu-splitmix")
CUT_SLACK = 0.15
SIGMA = distance.Sigma(tuple(np.linspace(-18, -1, 19).tolist()), (0.05,) * 20)
NULL = evalue.null_shares([9000, 60, 40, 30, 20, 15, 10, 5, 1, 2])


def record(seed: int, width: int) -> tuple[Columns, Columns]:
    """An artifact's rows and a verifier's, noise of 0.02 nat between them."""
    rng = np.random.default_rng(seed)
    depth = -np.sort(rng.gamma(2.0, 2.2, (POSITIONS, width)), axis=1)
    depth -= np.log(np.exp(depth).sum(axis=1, keepdims=True)) + 0.02
    ids = np.array([rng.permutation(VOCABULARY)[:width] for _ in range(POSITIONS)])
    noised = depth + rng.normal(0, 0.02, depth.shape)
    where = rng.geometric(0.5, POSITIONS).clip(1, RECORDED) - 1
    rows = np.arange(POSITIONS)
    own = make_columns(ids[rows, where], noised[rows, where], ids[:, :RECORDED].tolist(), noised[:, :RECORDED].tolist())
    return own, make_columns(ids[rows, where], depth[rows, where], ids.tolist(), depth.tolist())


def statistics(own: Columns, verifier: Columns, seed: int) -> float:
    """Every array statistic of one artifact; the sum keeps them from being skipped."""
    inner = redraw.redraw(own, SAMPLER, SPLITMIX, seed, 12, vocab_size=VOCABULARY)
    _, scores = distance_table.measure(own, verifier, SIGMA)
    outer = redraw.redraw(verifier, SAMPLER, SPLITMIX, seed, 12, slack=CUT_SLACK, vocab_size=VOCABULARY)
    drawn = plausibility.outcomes(verifier, SAMPLER, VOCABULARY)
    bet = evalue.bins_log_e(redraw.margin_bins(outer), NULL)
    told = plausibility.surprise(drawn)
    total = sum(scores.values()) + inner.capped() + float(bet[-1])
    return total + told.entropy + float(plausibility.tempered_log_e(drawn).sum())


def measure(width: int) -> dict[str, float]:
    """The best of three rounds; each round starts from fresh records, so nothing derived is reused."""
    best = float("inf")
    for _ in range(3):
        pairs = [record(i, width) for i in range(ARTIFACTS)]
        start = time.process_time()
        for i, (own, verifier) in enumerate(pairs):
            statistics(own, verifier, i)
        best = min(best, (time.process_time() - start) / ARTIFACTS)
    rate = {"artifacts_a_second": round(1 / best, 1), "microseconds_a_position": round(1e6 * best / POSITIONS, 2)}
    return {**rate, "positions": POSITIONS, "recorded": RECORDED, "replayed": width}


def main() -> None:
    statistics(*record(0, WIDTHS[0]), 0)
    for width in WIDTHS:
        print(json.dumps({**measure(width), "load_average": os.getloadavg()[0]}))


if __name__ == "__main__":
    main()
