"""S0c: what the sums of recorded probabilities say about their kind. Needs no model.

Raw logprobs are those of the whole vocabulary and leave mass over. Processed ones are normalised over what the cuts
keep: a row that lists all of that sums to 1, and with top-k nothing lies below the k-th best, so that the mass left
over is that of tokens which tie with it, a multiple of its own. A row that breaks this is not processed, for certain;
rows that sum to 1 only look processed, since raw ones may be that peaked.
Cannot see: rows narrower than what was kept; temperature 1 without cuts, where the two are one; forged sums.
"""

from __future__ import annotations

import msgspec
import numpy as np

from logproof.verify.artifact.columns import REST_SLACK, Columns, Floats, Mask
from logproof.verify.check_table import MASS
from logproof.verify.checks.case import RecordedCase, has_cuts
from logproof.verify.stats.sampler import GREEDY_BELOW
from logproof.verify.verdict import Finding, Reason

CLOSE = 1e-5
"""How far a float32 row that sums to 1 may be from it."""


def not_processed(columns: Columns, k: int, top_k: int, step: float = 0.0) -> Mask:
    """bool [n]: rows that no processed logprobs under this top-k have, whatever other cuts there are.

    k: entries asked; a row of fewer lists all that was kept. top_k: 0 is off. step: rounding of a recorded logprob,
    nats. Rows whose sampled token has no logprob are not judged.
    """
    slack = REST_SLACK + float(np.expm1(step))
    left = 1.0 - columns.mass
    known = columns.sampled_cell >= 0
    wrong = (columns.counts < k) & (np.abs(left) > slack)
    if 0 < top_k <= columns.width:
        full = columns.counts >= top_k
        kth = np.where(full, columns.logprobs[:, top_k - 1], 0.0)
        wrong |= full & (_lowest(columns) < kth - 2.0 * step - CLOSE)
        ties = np.maximum(np.round(left / np.exp(kth)), 0.0)
        wrong |= full & (np.abs(left - ties * np.exp(kth)) > slack)
    return np.asarray(wrong & known, np.bool_)


def _lowest(columns: Columns) -> Floats:
    """The least known logprob of each row, float64 [n], infinity where there is none."""
    every = columns.entries[1]
    return np.asarray(np.where(np.isfinite(every), every, np.inf).min(axis=1, initial=np.inf), np.float64)


def share_of_ones(columns: Columns) -> float:
    """Share of rows (0..1) whose probabilities sum to 1 within CLOSE; NaN without rows."""
    return float((np.abs(columns.mass - 1.0) <= CLOSE).mean()) if len(columns) else float("nan")


def check_mass(case: RecordedCase) -> list[Finding]:
    """S0c: a failure where processed logprobs are stated and cannot be, else a note where the two kinds differ."""
    artifact, columns = case.artifact, case.columns
    spec, sampling = artifact.logprobs, artifact.sampling
    if spec is None or spec.mode == "constrained" or not columns.width or not has_cuts(sampling):
        return []
    if artifact.claim.engine.name != "vllm":  # SGLang's are processed before its cuts, and sum to 1 over all tokens
        return []
    if sampling.temperature is None or sampling.temperature < GREEDY_BELOW:
        return []
    wrong = not_processed(columns, spec.k, sampling.top_k or 0, spec.step)
    finding = Finding(test=MASS.id, outcome="note", detail="", n=len(columns), blind=MASS.blind)
    if spec.mode == "processed" and wrong.any():
        at = int(wrong.argmax())
        detail = (
            f"processed logprobs are stated, but {int(wrong.sum())} of {len(columns)} rows cannot be: row {at} lists"
            f" {columns.counts[at]} tokens of probability {columns.mass[at]:.4f} together; they look raw"
        )
        numbers = {"impossible_share": float(wrong.mean())}
        return [msgspec.structs.replace(finding, outcome="fail", reason="kind", detail=detail, statistic=numbers)]
    ones = share_of_ones(columns)
    looks = "processed" if ones == 1.0 and spec.step < CLOSE else "raw" if wrong.any() else None
    odd = looks is not None and looks != spec.mode
    detail = f"{ones:.1%} of rows sum to 1; {spec.mode} logprobs are stated{f', they look {looks}' if odd else ''}"
    numbers = {"ones_share": ones}
    reason: Reason | None = "kind" if odd else None
    return [msgspec.structs.replace(finding, reason=reason, detail=detail, statistic=numbers)]
