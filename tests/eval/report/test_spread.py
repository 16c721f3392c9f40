"""The spread of differences, against a sort of all of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logproof.eval.report.spread import EDGES, Spread

sizes = st.one_of(st.sampled_from(EDGES), st.floats(0, 20))


@given(st.lists(st.lists(sizes, min_size=1), min_size=1), st.floats(0.01, 1.0))
def test_bounds_hold_for_their_share(parts: list[list[float]], share: float) -> None:
    spread = Spread()
    for part in parts:
        spread.add(np.array(part))
    every = np.sort(np.concatenate([np.array(p) for p in parts]))
    assert spread.positions == len(every)
    assert spread.mean == pytest.approx(every.mean())
    needed = every[min(len(every), max(1, int(np.ceil(share * len(every))))) - 1]
    bound = spread.bound(share)
    assert bound == next((edge for edge in EDGES if edge >= needed), None)


def test_nothing_counted_has_no_figures() -> None:
    assert (Spread().mean, Spread().bound(0.9), Spread().positions) == (None, None, 0)


def test_equal_values_are_a_bin_of_their_own() -> None:
    spread = Spread()
    spread.add(np.array([0.0, 0.0, 5.0]))
    assert (spread.counts[0], spread.counts[-1]) == (2, 1)
    assert (spread.bound(0.5), spread.bound(1.0)) == (0.0, None)
