"""S0b: the lattice of rounded logits."""

from __future__ import annotations

import math

import pytest

from logproof.verify.checks import rounding
from verify.builders import bfloat, logits, record


def test_lattice_tells_dtypes_apart() -> None:
    z = logits(200, 9, spread=4.0)
    ids = [0] * 200
    b16, f16, f32 = record(bfloat(z), ids, 20), record(bfloat(z, 2**-8), ids, 20), record(z, ids, 20)
    assert rounding.lattice_share(b16, 2**-5) == 1.0
    assert rounding.lattice_share(f32, 2**-5) < 0.01
    assert [rounding.read_lattice(c) for c in (b16, f16, f32)] == [
        rounding.LatticeReading("bfloat16", 1.0, 1.0),
        rounding.LatticeReading("float16", 1.0, 1.0),
        None,
    ]
    assert math.isnan(rounding.lattice_share(b16.narrow(1), 2**-5))
    with pytest.raises(ValueError, match="fits every row"):
        rounding.lattice_share(b16, 1e-5)


def test_lattice_finds_the_temperature() -> None:
    z = bfloat(logits(200, 10, spread=4.0))
    hot = record(z / 0.7, [0] * 200, 20)
    assert rounding.lattice_share(hot, 2**-5, 0.701) < 0.05
    assert rounding.read_lattice(hot) == rounding.LatticeReading("bfloat16", 0.7, 1.0)
    odd = record(z / 0.733, [0] * 200, 20)
    assert rounding.read_lattice(odd) is None
    assert rounding.read_lattice(odd, (0.733,)) == rounding.LatticeReading("bfloat16", 0.733, 1.0)
    assert rounding.read_lattice(hot.narrow(1)) is None
