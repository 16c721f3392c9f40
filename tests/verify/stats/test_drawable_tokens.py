from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logproof.verify.artifact.columns import NO_ID, make_columns
from logproof.verify.stats.drawable_tokens import support
from logproof.verify.stats.sampler import Sampler
from logproof.verify.stats.sampler_profiles import profile
from verify.builders import VOCAB, bfloat, draw, log_softmax, logits, masked, quick, record

SPLITMIX = profile("v1-cpu-splitmix")


samplers = st.builds(
    Sampler,
    st.sampled_from([0.5, 0.7, 1.0, 1.3]),
    st.sampled_from([0, 1, 3, 8, 40]),
    st.sampled_from([1.0, 0.95, 0.6, 0.2]),
    st.sampled_from([0.0, 0.02, 0.3]),
)


@quick
@given(st.integers(0, 5000), samplers, st.integers(1, 60), st.booleans(), st.floats(0, 0.02))
def test_support_is_sound(seed: int, sampler: Sampler, k: int, coarse: bool, slack: float) -> None:
    """What is called kept is kept and what is called cut is cut in the full row; the normaliser lies in its bounds."""
    z = logits(5, seed, vocab=60)
    z = bfloat(z, 0.5) if coarse else z
    ids = draw(z, sampler, seed)
    got = support(record(z, ids, k), sampler, slack=slack, vocab_size=60)
    for i in range(5):
        row = masked(z[i], sampler)
        raw = log_softmax(z[i]) / sampler.temperature
        whole = float(np.log(np.exp(raw[np.isfinite(row)]).sum()) - got.unlisted.shift[i])
        open_ties = sampler.top_p < 1.0 and coarse
        for t, kept, cut in zip(got.ids[i], got.kept[i], got.cut[i], strict=True):
            assert not (kept and cut)
            if t != NO_ID and not open_ties:
                assert not (kept and not np.isfinite(row[t]))
                assert not (cut and np.isfinite(row[t]))
        assert got.log_z_low[i] <= whole + 1e-5 or open_ties
        assert got.log_z_high[i] >= whole - 1e-5 or open_ties
        assert not got.sampled_cut[i]


@quick
@given(st.integers(0, 500), samplers)
def test_rows_of_the_whole_vocabulary_tell_kept_tokens_from_cut_ones(seed: int, sampler: Sampler) -> None:
    z = logits(4, seed, vocab=40)
    got = support(record(z, draw(z, sampler, seed), 40), sampler, vocab_size=40)
    real = got.ids != NO_ID
    assert (got.kept | got.cut)[real].mean() > 0.97
    truth = np.array([np.isfinite(masked(z[i], sampler))[got.ids[i, :40]] for i in range(4)])
    assert (truth == got.kept[:, :40])[(got.kept | got.cut)[:, :40]].all()


def test_rows_whose_sampled_token_is_likelier_than_the_list_are_sorted_first() -> None:
    c = make_columns([9], [-0.2], [[1, 2]], [[-3.0, -4.0]])
    got = support(c, Sampler(1.0, 1), vocab_size=20)
    assert got.ids.tolist() == [[1, 2, 9]]
    assert got.kept.tolist() == [[False, False, True]]
    assert got.cut.tolist() == [[True, True, False]]


def test_without_a_vocabulary_size_a_cold_tail_has_no_lower_bound() -> None:
    c = record(logits(3, 1), [1, 2, 3], 4)
    open_, known = support(c, Sampler(0.5)), support(c, Sampler(0.5), vocab_size=VOCAB)
    assert (open_.log_z_low < known.log_z_low).all()


def test_a_greedy_sampler_has_no_support() -> None:
    with pytest.raises(ValueError, match="greedy"):
        support(record(logits(1, 1), [1], 3), Sampler(0.0))


def test_an_unknown_sampled_logprob_has_no_cell() -> None:
    c = make_columns([1, 2], [-1.0, None], [[1], [3]], [[-1.0], [-0.5]])
    got = support(c, Sampler(2.0), vocab_size=9)
    assert got.scores[0, got.x[0]] == -0.5
    assert got.x.tolist() == [0, -1]
    assert not got.sampled_cut.any()
