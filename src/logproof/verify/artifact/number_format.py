"""What a number format does to logprobs: which values lie in it, and how far it may have moved one. Pure.

A record states its format and the largest rounding error that it made. Both follow from the values: float32 moves a
value by at most half a unit in its last place, a fixed format by half of its unit. A larger error is no rounding, and
every test that allows for it would be looser than the record's numbers are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from logproof.verify.artifact.artifact import LogprobsSpec
from logproof.verify.artifact.columns import FILLER, Floats

LEAST_DENOMINATOR = 1024
"""Units a nat of the coarsest fixed format that counts, unless a policy allows a coarser one: `capture --fixed`."""
MOST_DENOMINATOR = 1 << 40
"""Finer units than that no float64 holds for values of usual size."""
STEP_SLACK = 1.0 + 1e-9
"""Factor on the largest rounding error, for that of its own computation."""


def most_step(spec: LogprobsSpec, values: Floats) -> float:
    """Largest error that this format makes of these values, nats; what is no logprob is skipped.

    values: float64, all that the record holds. 0 for a fixed format without a unit.
    """
    if spec.format == "fixed":
        return 0.5 * STEP_SLACK / spec.denominator if unit_is_sound(spec) and spec.denominator else 0.0
    real = values[np.isfinite(values) & (values > FILLER) & (values < -FILLER)]
    deepest = np.float32(np.abs(real).max(initial=0.0))
    return float(np.spacing(deepest)) / 2.0 * STEP_SLACK


def unit_is_sound(spec: LogprobsSpec) -> bool:
    """Whether a fixed format, and only it, has a unit that can be computed with."""
    if spec.format != "fixed":
        return spec.denominator is None
    return spec.denominator is not None and 1 <= spec.denominator <= MOST_DENOMINATOR


def in_format(values: Sequence[float] | Floats, spec: LogprobsSpec) -> bool:
    """Whether all values are float32 numbers, or multiples of the fixed format's unit."""
    array = np.asarray(values, np.float64)
    if spec.format == "float32":
        with np.errstate(over="ignore"):
            return bool(np.array_equal(array.astype(np.float32).astype(np.float64), array))
    if not unit_is_sound(spec) or spec.denominator is None:
        return False
    return bool(np.array_equal(np.round(array * spec.denominator) / spec.denominator, array))
