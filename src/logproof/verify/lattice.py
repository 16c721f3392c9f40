"""S0b: the lattice that a rounded logit leaves in recorded logprobs. Needs no model.

Engines compute logits in the model's dtype. A bfloat16 logit of the usual magnitude is a multiple of 1/32, a
float16 one of 1/256, so within a row all logprob differences are; after division by a temperature T they are
multiples of that over T. This tells bfloat16 from float32, raw from processed, and finds T itself.
Cannot see: models that scale or cap logits by other than powers of two, float32 heads, values recorded in steps
that are not finer than the lattice, forged values that were put on the lattice. At T = 1 without cuts raw and
processed are one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from logproof.verify.columns import Columns

STEPS = {"bfloat16": 2.0**-5, "float16": 2.0**-8}
TOLERANCE = 1e-4
"""How far a difference may lie off the lattice, nats."""


def lattice_share(columns: Columns, step: float, temperature: float = 1.0, tolerance: float = TOLERANCE) -> float:
    """Share of rows (0..1) whose differences, times temperature, are all multiples of `step`; NaN without such rows.

    A row counts from two entries on. Above 0.95 for honest bfloat16 at 2**-5; about 0 for float32.
    tolerance must be below step / 2, else every row fits: ValueError.
    """
    if tolerance >= step / 2:
        raise ValueError(f"a tolerance of {tolerance} fits every row at step {step}")
    present = columns.present
    counted = present.sum(axis=1) >= 2
    if not counted.any():
        return float("nan")
    values = np.where(present, columns.logprobs, columns.logprobs[:, :1])[counted]
    gaps = (values - values[:, :1]) * temperature
    off = np.abs(gaps - np.round(gaps / step) * step)
    return float((off <= tolerance * max(1.0, temperature)).all(axis=1).mean())


def best_temperature(columns: Columns, step: float, candidates: Sequence[float]) -> tuple[float, float]:
    """(temperature, share) of the candidate under which most rows lie on the lattice; the first of equals.

    Small temperatures press all differences towards 0 and fit by chance: keep candidates * the row's spread well
    above step. Raises ValueError without candidates.
    """
    if not candidates:
        raise ValueError("no candidate temperatures")
    shares = [lattice_share(columns, step, t) for t in candidates]
    best = int(np.nanargmax(shares)) if not np.isnan(shares).all() else 0
    return candidates[best], shares[best]


def dtype_of(columns: Columns, temperature: float = 1.0, need: float = 0.95) -> str | None:
    """The coarsest dtype whose lattice holds for at least `need` of the rows, else None (float32 or unknown)."""
    for name, step in STEPS.items():
        share = lattice_share(columns, step, temperature)
        if share >= need:
            return name
    return None
