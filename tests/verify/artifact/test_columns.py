from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logproof.verify.artifact.columns import NO_ID, REST_SLACK, make_columns, to_fixed, to_float32
from logproof.verify.stats.sampler import Sampler
from verify.builders import VOCAB, draw, from_maps, log_softmax, logits, quick, record


def test_ragged_rows_are_padded_and_sorted() -> None:
    c = make_columns([5, 8], [-1.0, None], [[4, 5], [9]], [[-2.0, -1.0], [-0.5]])
    assert c.ids.tolist() == [[5, 4], [9, NO_ID]]
    assert c.logprobs.tolist() == [[-1.0, -2.0], [-0.5, -np.inf]]
    assert np.isnan(c.sampled_logprobs[1])
    assert c.present.tolist() == [[True, True], [True, False]]
    assert (len(c), c.width) == (2, 2)
    assert len(c.head(1)) == 1
    assert c.narrow(1).ids.tolist() == [[5], [9]]


def test_an_unreported_sampled_logprob_is_read_from_its_row() -> None:
    assert make_columns([5], [None], [[4, 5]], [[-2.0, -1.0]]).sampled_logprobs.tolist() == [-1.0]


def test_impossible_tokens_are_absent() -> None:
    c = make_columns([1], [-np.inf], [[1, 2]], [[-np.inf, -0.1]])
    assert c.ids.tolist() == [[2, NO_ID]]
    assert np.isnan(c.sampled_logprobs[0])


def test_ties_are_ordered_by_id() -> None:
    assert from_maps([3], [{3: -1.0, 1: -1.0, 2: -1.0}]).ids.tolist() == [[1, 2, 3]]


@pytest.mark.parametrize(("ids", "rows"), [([1, 2], [[-1.0]]), ([1], [[-1.0], [-2.0]])])
def test_unequal_lengths_are_refused(ids: list[int], rows: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="sampled ids"):
        make_columns(ids, [None] * len(ids), [[1]] * len(rows), rows)


def test_rows_of_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="shape"):
        make_columns([1], [None], [[1, 2]], [[-1.0]])


@quick
@given(st.integers(0, 10_000), st.integers(1, 12), st.booleans())
def test_floor_bounds_every_unlisted_token(seed: int, k: int, displaced: bool) -> None:
    z = logits(6, seed)
    ids = draw(z, Sampler(1.5), seed)
    c = record(z, ids, k)
    if displaced:
        rows = [([*c.ids[i, : k - 1], ids[i]] if ids[i] not in c.ids[i] else list(c.ids[i])) for i in range(len(ids))]
        raw = log_softmax(z)
        c = make_columns(ids, raw[np.arange(6), ids], rows, [[float(raw[i, t]) for t in r] for i, r in enumerate(rows)])
    truth = log_softmax(z)
    for i, bound in enumerate(c.floor):
        unlisted = [t for t in range(VOCAB) if t not in c.ids[i] and t != ids[i]]
        assert truth[i, unlisted].max() <= bound + 1e-6


def test_floor_of_a_lone_sampled_token_is_the_mass_left() -> None:
    c = make_columns([1], [np.log(0.75)], [[1]], [[np.log(0.75)]])
    assert c.floor[0] == pytest.approx(np.log(0.25 + REST_SLACK))


def test_floor_survives_rounded_logprobs_that_hold_all_the_mass() -> None:
    """Listed probabilities sum to more than 1 by rounding; the floor is still the least entry, not lower."""
    c = make_columns([1], [np.log(0.7501)], [[1, 2, 3]], [[np.log(0.7501), np.log(0.25), -12.0]])
    assert c.floor[0] == pytest.approx(-12.0)


def test_entries_add_the_token_only_where_it_is_apart() -> None:
    ids, values = make_columns([4, 9], [-1.0, -5.0], [[4], [4]], [[-1.0], [-1.0]]).entries
    assert ids.tolist() == [[4, NO_ID], [4, 9]]
    assert values.tolist() == [[-1.0, -np.inf], [-1.0, -5.0]]


@quick
@given(
    st.lists(st.dictionaries(st.integers(0, 2**32), st.floats(-80, 0, width=32), max_size=6), min_size=1, max_size=8)
)
def test_number_formats_round_to_the_nearest(rows: list[dict[int, float]]) -> None:
    c = make_columns([0] * len(rows), [None] * len(rows), [list(r) for r in rows], [list(r.values()) for r in rows])
    fixed, single = to_fixed(c), to_float32(c)
    for kept, step in ((fixed, 0.5 / 1024), (single, 0.0)):
        assert kept.ids.shape == c.ids.shape
        for own, other in zip(np.sort(c.logprobs, axis=1), np.sort(kept.logprobs, axis=1), strict=True):
            near = np.isfinite(own)
            assert (np.abs(own[near] - other[near]) <= step).all()
    finite = fixed.logprobs[np.isfinite(fixed.logprobs)]
    assert (finite * 1024 == np.round(finite * 1024)).all()
