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

import msgspec
import numpy as np

from logproof.verify.artifact.columns import Columns
from logproof.verify.check_table import ROUNDING
from logproof.verify.checks.case import RecordedCase
from logproof.verify.verdict import Finding

STEPS = {"bfloat16": 2.0**-5, "float16": 2.0**-8}
TOLERANCE = 1e-4
"""How far a difference may lie off the lattice, nats."""
HONEST_SHARE = 0.95
"""Share of rows on the lattice of the claimed dtype from which the claim fits."""
CHANCE_SHARE = 0.5
"""Share of rows on bfloat16's lattice above which logits that are claimed to be float32 are not."""


def lattice_share(columns: Columns, step: float, temperature: float = 1.0, tolerance: float = TOLERANCE) -> float:
    """Share of rows (0..1) whose differences, times temperature, are all multiples of `step`; NaN without such rows.

    A row counts from two entries on. Above HONEST_SHARE for honest bfloat16 at 2**-5; about 0 for float32.
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


class LatticeReading(msgspec.Struct, frozen=True):
    """What a lattice says. dtype: of the logits. temperature: by which they were divided; 1 is raw. share: of rows."""

    dtype: str
    temperature: float
    share: float


TEMPERATURES = tuple(round(0.05 * i, 2) for i in range(2, 41))
"""Candidates: 0.1 to 2 in steps of 0.05. Off by 0.001 no row fits, so others have to be named."""


def read_lattice(
    columns: Columns, temperatures: Sequence[float] = (), need: float = HONEST_SHARE
) -> LatticeReading | None:
    """The dtype and temperature under which at least `need` of the rows lie on a lattice; None where none fits.

    Tried in this order: no temperature, the given ones, TEMPERATURES; the coarser dtype first.
    """
    for name, step in STEPS.items():
        for t in (1.0, *temperatures, *TEMPERATURES):
            share = lattice_share(columns, step, t)
            if share >= need:
                return LatticeReading(name, t, share)
    return None


def check_rounding(case: RecordedCase) -> list[Finding]:
    """S0b, a note: forged values may be put on the lattice, and some models have none."""
    artifact, columns = case.artifact, case.columns
    dtype, spec = artifact.claim.numerics.dtype, artifact.logprobs
    step = STEPS.get(dtype or "")
    if spec is None or columns.width < 2 or (step is None and dtype != "float32"):
        return []
    if spec.step >= TOLERANCE:
        return []
    t = artifact.sampling.temperature or 1.0
    scale = t if spec.mode == "processed" else 1.0
    share = lattice_share(columns, step or STEPS["bfloat16"], scale)
    odd = share < HONEST_SHARE if step is not None else share > CHANCE_SHARE
    grid = dtype if step is not None else "bfloat16"
    detail = f"{share:.1%} of rows lie on the lattice of {grid}; {dtype} is claimed"
    reading = read_lattice(columns, (t,)) if odd else None
    if reading is not None:
        kind = "raw" if reading.temperature == 1.0 else f"processed at temperature {reading.temperature:g}"
        detail += f"; they look like {reading.dtype}, {kind}"
    return [
        Finding(
            test=ROUNDING.id,
            outcome="note",
            reason="lattice" if odd else None,
            detail=detail,
            n=len(columns),
            statistic={"lattice_share": share},
            blind=ROUNDING.blind,
        )
    ]
