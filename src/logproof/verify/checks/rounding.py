"""S0b: the lattice that a rounded logit leaves in recorded logprobs. Needs no model.

Logits on the lattice of bfloat16 or float16 are not those of float32, however the claim names them: that is exact. A
claim of either that no lattice shows is only noted, for the reasons below.

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
from logproof.verify.verdict import Finding, failed_if, passed

STEPS = {"bfloat16": 2.0**-5, "float16": 2.0**-8}
TOLERANCE = 1e-4
"""How far a difference may lie off the lattice, nats."""
HONEST_SHARE = 0.95
"""Share of rows on the lattice of the claimed dtype from which the claim fits."""
CHANCE_SHARE = 0.5
"""Share of rows on bfloat16's lattice above which logits that are claimed to be float32 look rounded."""
CHANCE = 1e-3
"""A row tells whether logits were rounded where its values would all lie on the lattice with at most this chance."""
LEAST_ROWS = 8
"""Such rows that a rejection needs."""


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


def rounded_share(columns: Columns, step: float, temperature: float, tolerance: float) -> tuple[float, int]:
    """Share of rows (0..1, NaN for none) whose differences all lie on the lattice, of those that tell; and their count.

    A row tells where its distinct values are so many that chance puts all on the lattice with CHANCE at most.
    """
    near = tolerance * max(1.0, temperature)
    values = np.where(columns.present, columns.logprobs, columns.logprobs[:, :1])
    gaps = np.abs(values - values[:, :1]) * temperature
    # Entries fall along a row, so equal ones are neighbours; gaps within the tolerance are 0 on any lattice.
    distinct = (np.diff(gaps, axis=1) > 2.0 * near).sum(axis=1)
    tells = min(1.0, 2.0 * near / step) ** distinct <= CHANCE
    if not tells.any():
        return float("nan"), 0
    off = np.abs(gaps - np.round(gaps / step) * step)[tells]
    return float((off <= near).all(axis=1).mean()), int(tells.sum())


def check_rounding(case: RecordedCase) -> list[Finding]:
    """S0b: a failure where float32 is claimed of rounded logits, else a note: some models have no lattice."""
    spec, columns = case.artifact.logprobs, case.columns
    dtype = case.artifact.claim.numerics.dtype or case.facts.dtype
    if spec is None or columns.width < 2:
        return []
    t = case.artifact.sampling.temperature or 1.0
    scale = t if spec.mode == "processed" else 1.0
    if "float32" in (dtype, case.facts.dtype):
        whose = "float32 is claimed" if dtype == "float32" else "the policy is of a float32 executor"
        rounded = _rounded(columns, scale, max(TOLERANCE, 2.0 * spec.step), whose)
        if rounded is not None:
            return [rounded]
    if spec.step >= TOLERANCE or (dtype != "float32" and dtype not in STEPS):
        return []
    return [_noted(columns, dtype, scale, t)]


def _rounded(columns: Columns, scale: float, tolerance: float, whose: str) -> Finding | None:
    """The failure where rounded logits stand for those of float32.

    scale: the temperature that the logprobs were divided by. tolerance: of a difference, nats. whose: who says float32.
    """
    for name, step in STEPS.items():
        share, rows = rounded_share(columns, step, scale, tolerance)
        if rows >= LEAST_ROWS and share >= HONEST_SHARE:
            detail = f"{share:.1%} of {rows} rows lie on the lattice of {name}; {whose}"
            finding = passed(ROUNDING, detail, rows, {"lattice_share": share})
            return failed_if(True, finding, "lattice")
    return None


def _noted(columns: Columns, dtype: str, scale: float, temperature: float) -> Finding:
    """What the lattice of the claimed dtype, or for float32 that of bfloat16, says; it rejects nothing."""
    grid = dtype if dtype in STEPS else "bfloat16"
    share = lattice_share(columns, STEPS[grid], scale)
    odd = share < HONEST_SHARE if dtype in STEPS else share > CHANCE_SHARE
    detail = f"{share:.1%} of rows lie on the lattice of {grid}; {dtype} is claimed"
    reading = read_lattice(columns, (temperature,)) if odd else None
    if reading is not None:
        kind = "raw" if reading.temperature == 1.0 else f"processed at temperature {reading.temperature:g}"
        detail += f"; they look like {reading.dtype}, {kind}"
    return Finding(
        test=ROUNDING.id,
        outcome="note",
        reason="lattice" if odd else None,
        detail=detail,
        n=len(columns),
        statistic={"lattice_share": share},
        blind=ROUNDING.blind,
    )
