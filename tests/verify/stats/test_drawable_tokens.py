from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logproof.errors import UsageError
from logproof.verify.artifact.columns import NO_ID, make_columns
from logproof.verify.stats import redraw
from logproof.verify.stats.drawable_tokens import support
from logproof.verify.stats.plausibility import (
    greedy_gaps,
    outcomes,
    surprise,
    tempered_log_e,
)
from logproof.verify.stats.sampler import Sampler, bending, claimed
from logproof.verify.stats.sampler_profiles import profile
from verify import builders
from verify.builders import VOCAB, bfloat, draw, from_maps, log_softmax, logits, masked, noisy, quick, record

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
def test_whole_rows_decide_every_token(seed: int, sampler: Sampler) -> None:
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


@quick
@given(st.integers(0, 10_000), samplers, st.integers(1, 30))
def test_an_honest_record_never_contradicts_itself(seed: int, sampler: Sampler, k: int) -> None:
    z = logits(12, seed)
    c = record(z, draw(z, sampler, seed), k)
    got = redraw.redraw(c, sampler, SPLITMIX, seed, 3, vocab_size=VOCAB)
    assert redraw.first_violation(got) is None
    assert not got.out.any()
    assert got.capped() <= got.tolerance


cold = st.builds(
    Sampler, st.sampled_from([0.01, 0.02, 0.1]), st.just(0), st.sampled_from([1.0, 0.9]), st.sampled_from([0.0, 0.1])
)


@quick
@given(st.integers(0, 10_000), cold, st.integers(1, 30))
@pytest.mark.filterwarnings("error")
def test_a_cold_record_has_a_support(seed: int, sampler: Sampler, k: int) -> None:
    """exp(logprob / 0.01) is 0 in float64 below -7.45 nats, which many a row's best is."""
    z = logits(12, seed, spread=0.2)
    c = record(z, draw(z, sampler, seed), k)
    got = support(c, sampler, vocab_size=VOCAB)
    assert not got.sampled_cut.any()
    assert np.isfinite(got.log_z_high).all()
    redrawn = redraw.redraw(c, sampler, SPLITMIX, seed, 3, vocab_size=VOCAB)
    assert redraw.first_violation(redrawn) is None
    drawn = outcomes(c, sampler, VOCAB)
    assert not np.isnan(drawn.log_q).any()
    assert not drawn.out.any()


@quick
@given(st.integers(0, 3000), samplers, st.sampled_from([16, 256, 1024]))
def test_rounding_within_the_recorded_step_is_no_contradiction(seed: int, sampler: Sampler, grid: int) -> None:
    z = logits(12, seed)
    c = record(z, draw(z, sampler, seed), 15)
    coarse = make_columns(
        c.sampled_ids,
        np.round(c.sampled_logprobs * grid) / grid,
        c.ids.tolist(),
        (np.round(c.logprobs * grid) / grid).tolist(),
    )
    got = redraw.redraw(coarse, sampler, SPLITMIX, seed, 3, step=0.5 / grid, vocab_size=VOCAB)
    assert redraw.first_violation(got) is None


@pytest.mark.parametrize(
    ("true", "told", "share"),
    [
        (Sampler(1.1), Sampler(1.0), 0.01),
        (Sampler(0.0), Sampler(1.0), 0.2),
        (Sampler(1.0, 0, 0.8), Sampler(1.0), 0.02),
        (Sampler(1.0), Sampler(1.0, 10), 0.1),
    ],
)
def test_false_sampling_claims_contradict_the_record(true: Sampler, told: Sampler, share: float) -> None:
    z = logits(600, 11)
    c = record(z, draw(z, true, 5), 20)
    got = redraw.redraw(c, told, SPLITMIX, 5, 3, vocab_size=VOCAB)
    assert got.mismatch.mean() > share


def test_another_seed_and_a_foreign_writer_contradict_the_record() -> None:
    z = logits(100, 12)
    c = record(z, draw(z, Sampler(1.0), 5), 20)
    assert redraw.redraw(c, Sampler(1.0), SPLITMIX, 6, 3).mismatch.mean() > 0.5
    foreign = draw(noisy(z, 3, 1.0), Sampler(1.0), 5)
    got = redraw.redraw(record(z, foreign, 20), Sampler(1.0), SPLITMIX, 5, 3)
    assert got.mismatch.mean() > 0.1
    assert redraw.first_violation(got) == int(np.flatnonzero(got.mismatch)[0])


def test_unknown_sampled_logprobs_are_not_judged() -> None:
    c = make_columns([5], [None], [[1, 2]], [[-0.5, -1.0]])
    got = redraw.redraw(c, Sampler(1.0), SPLITMIX, 1, 1)
    assert not got.known.any()
    assert np.isnan(got.capped())
    assert redraw.margin_bins(got).tolist() == []
    assert redraw.first_violation(got) is None


def test_margin_bins() -> None:
    got = redraw.Redraw(
        np.array([0.0, 1e-6, 0.02, 0.03, 0.2, 7.0, 0.1]),
        np.array([False] * 6 + [True]),
        np.zeros(7, np.int64),
        1e-5,
    )
    assert redraw.margin_bins(got).tolist() == [0, 0, 1, 1, 5, 8, 9]
    assert got.capped(1.0) == pytest.approx((0.02 + 0.03 + 0.2 + 1.0 + 1.0) / 7, abs=1e-6)


def test_a_profile_without_noise_is_refused() -> None:
    with pytest.raises(UsageError):
        redraw.redraw(record(logits(1, 1), [1], 3), Sampler(1.0), profile("flashinfer"), 1, 1)


def test_the_claimed_sampler() -> None:
    told = builders.sampling(Sampler(0.7, 5, 0.9, 0.1), 1, 4)
    assert claimed(told, "raw") == Sampler(0.7, 5, 0.9, 0.1)
    assert claimed(told, "processed") == Sampler(1.0)
    assert claimed(told, "unknown") == "the logprobs' meaning is unknown"
    assert Sampler(0.0).greedy
    assert not Sampler(0.7).plain
    assert Sampler(1.0).plain
    bent = msgspec.structs.replace(told, presence_penalty=1.5)
    assert bending(bent) == ("presence_penalty",)
    assert "presence_penalty" in str(claimed(bent, "raw"))
    assert claimed(bent, "processed") == Sampler(1.0)
    assert claimed(msgspec.structs.replace(told, temperature=0.0), "processed") == Sampler(0.0)
    open_ = msgspec.structs.replace(told, top_p=None)
    assert "unresolved" in str(claimed(open_, "raw"))
    assert bending(msgspec.structs.replace(told, logit_bias=None)) == ("logit_bias",)


def test_greedy_gaps_treat_ties_as_a_set() -> None:
    c = from_maps([1, 2, 3, 4], [{1: -1.0, 2: -1.0}, {1: -1.0, 2: -1.0}, {1: -0.5, 3: -2.0}, {1: -0.5}])
    assert greedy_gaps(c)[:3].tolist() == [0.0, 0.0, 1.5]
    assert np.isnan(greedy_gaps(c)[3])
    apart = make_columns([9], [-0.2], [[1]], [[-3.0]])
    assert greedy_gaps(apart).tolist() == [0.0]


def z_scores(true: Sampler, told: Sampler, k: int, count: int = 60) -> list[float]:
    out = []
    for i in range(count):
        z = logits(40, 20_000 + i)
        c = record(z, draw(z, true, i), k)
        out.append(surprise(outcomes(c, told, VOCAB)).z)
    return out


@pytest.mark.parametrize("told", [Sampler(1.0), Sampler(1.0, 20), Sampler(0.8, 10, 0.9), Sampler(1.2, 15, 1.0, 0.02)])
@pytest.mark.parametrize("k", [3, 30])
def test_honest_surprise_is_near_standard_normal(told: Sampler, k: int) -> None:
    if k < told.top_k or (told.top_p < 1.0 and k < 30):
        return
    z = z_scores(told, told, k)
    assert abs(np.mean(z)) < 0.45
    assert 0.75 < np.std(z) < 1.3


def test_surprise_sees_other_temperatures() -> None:
    assert np.mean(z_scores(Sampler(1.4), Sampler(1.0), 30, 40)) > 1.5
    assert np.mean(z_scores(Sampler(0.6), Sampler(1.0), 30, 40)) < -2


def test_surprise_by_hand() -> None:
    p = np.log([0.5, 0.25])
    c = make_columns([1, 2], [p[0], p[1]], [[1, 2, 3], [1, 2, 3]], [[*p, -3.0], [*p, -3.0]])
    told = surprise(outcomes(c, Sampler(1.0)))
    q = np.array([0.5, 0.25, 0.25])
    h = float(-(q * np.log(q)).sum())
    var = float((q * np.log(q) ** 2).sum()) - h * h
    assert told.entropy == pytest.approx(2 * h)
    assert told.z == pytest.approx((np.log(2) + np.log(4) - 2 * h) / np.sqrt(2 * var))
    assert (told.tokens, told.out, told.open) == (2, 0, 0)


def test_tokens_outside_the_support_are_counted_apart() -> None:
    z = logits(30, 14)
    lowest = [int(t) for t in z.argmin(axis=1)]
    told = surprise(outcomes(record(z, lowest, 30), Sampler(1.0, 5), VOCAB))
    assert (told.out, told.tokens) == (30, 0)
    assert np.isnan(told.z)


def test_unlisted_mass_leaves_positions_open() -> None:
    z = logits(30, 15)
    told = surprise(outcomes(record(z, draw(z, Sampler(2.0), 1), 3), Sampler(2.0), VOCAB))
    assert told.open == 30
    assert tempered_log_e(outcomes(record(z, draw(z, Sampler(2.0), 1), 3), Sampler(2.0), VOCAB)).size == 0


def test_tempered_evidence_grows_only_for_false_claims() -> None:
    z = logits(500, 16)
    honest = outcomes(record(z, draw(z, Sampler(1.0), 2), 30), Sampler(1.0), VOCAB)
    hot = outcomes(record(z, draw(z, Sampler(1.3), 2), 30), Sampler(1.0), VOCAB)
    assert tempered_log_e(honest).max() < np.log(100)
    assert tempered_log_e(hot)[-1] > np.log(100)


def test_honest_tempered_evidence_rarely_grows() -> None:
    """Ville: it ever reaches 10 in at most one honest run of ten."""
    tops = []
    for i in range(200):
        z = logits(15, 40_000 + i)
        drawn = outcomes(record(z, draw(z, Sampler(1.0), i), 20), Sampler(1.0), VOCAB)
        tops.append(float(tempered_log_e(drawn).max()))
    assert np.mean(np.array(tops) >= np.log(10)) <= 0.1
