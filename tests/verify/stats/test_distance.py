from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logproof.verify.artifact.columns import Columns, make_columns
from logproof.verify.stats import align, distance, gonka
from logproof.verify.stats.sampler import Sampler
from verify.builders import FLAT, VOCAB, draw, from_maps, log_softmax, logits, noisy, quick, record

maps = st.lists(
    st.dictionaries(st.integers(0, 9), st.floats(-30, -0.01), min_size=1, max_size=5), min_size=1, max_size=6
)


def slow_go(o: list[dict[int, float]], v: list[dict[int, float]]) -> float:
    total = 0.0
    for mine, theirs in zip(o, v, strict=True):
        low = sorted(mine.values())
        m1 = low[0]
        m2 = low[1] if len(low) > 1 else m1 - 100.0
        for token, value in theirs.items():
            partner = mine.get(token, m1 - (m2 - m1))
            total += abs(value - partner) / (1e-6 + abs(value) + abs(partner)) / 2
    return total / (max(100, len(o)) * len(o[0]))


def slow_python(o: list[dict[int, float]], v: list[dict[int, float]]) -> tuple[float, float]:
    total, listed = 0.0, 0
    for mine, theirs in zip(o, v, strict=True):
        if not theirs:
            total += len(mine)
            continue
        low = sorted(theirs.values())
        m1 = low[0]
        m2 = low[1] if len(low) > 1 else m1 - 1.0
        for token, value in mine.items():
            listed += token in theirs
            partner = theirs.get(token, m1 - (m2 - m1))
            total += abs(value - partner) / (1e-10 + abs(value) + abs(partner)) / 2
    width = len(o[0])
    return (total + 1) / (max(100, len(o)) * width + 1), listed / (len(o) * width)


def same_tokens(a: list[dict[int, float]], b: list[dict[int, float]]) -> tuple[Columns, Columns]:
    n = min(len(a), len(b))
    return from_maps([0] * n, a[:n]), from_maps([0] * n, b[:n])


@quick
@given(maps, maps)
def test_gonka_go_equals_the_plain_form(a: list[dict[int, float]], b: list[dict[int, float]]) -> None:
    n = min(len(a), len(b))
    own, theirs = same_tokens(a, b)
    assert gonka.go(own, theirs) == pytest.approx(slow_go(a[:n], b[:n]), rel=1e-12)


@quick
@given(maps, st.lists(st.dictionaries(st.integers(0, 9), st.floats(-30, -0.01), max_size=5), min_size=1, max_size=6))
def test_gonka_python_equals_the_plain_form(a: list[dict[int, float]], b: list[dict[int, float]]) -> None:
    n = min(len(a), len(b))
    own, theirs = same_tokens(a, b)
    assert gonka.GonkaLists(own, theirs).python == pytest.approx(slow_python(a[:n], b[:n]), rel=1e-12)


def test_gonka_quirks() -> None:
    one = from_maps([1], [{1: -0.5}])
    other = from_maps([1], [{2: -0.7}])
    assert gonka.go(one, other) == pytest.approx(0.5 * (99.5 + 0.7) / (99.5 + 0.7 + 1e-6) / 100)
    assert gonka.go(one, from_maps([1], [{}])) == math.inf
    assert gonka.GonkaLists(one, from_maps([1], [{}])).python == ((1 + 1) / 101, 0.0)
    assert gonka.GonkaLists(one, from_maps([2], [{1: -0.5}])).python == (-1.0, -1.0)
    assert gonka.go(one, one) == 0.0
    assert gonka.GonkaLists(one, one).python[0] == pytest.approx(1 / 101)
    with pytest.raises(ValueError, match="positions"):
        gonka.go(one, from_maps([1, 1], [{1: -1.0}] * 2))


def test_gonka_dilutes_short_answers() -> None:
    far, near = from_maps([1] * 10, [{1: -1.0}] * 10), from_maps([1] * 10, [{1: -2.0}] * 10)
    assert gonka.go(far, near) == pytest.approx(10 * 0.5 / 3 / 100, rel=1e-5)


def told(pairs: distance.Pairs) -> list[tuple[float, float]]:
    """(depth, residual) of everything that is compared."""
    depths, residuals = (
        (*table[pairs.used], *lone)
        for table, lone in ((pairs.e, pairs.lone_depths), (pairs.residual, pairs.lone_residual))
    )
    return list(zip(depths, residuals, strict=True))


def slow_pair(a: Columns, b: Columns) -> list[float]:
    """Residuals cell by cell: matched, or censored by the other side's floor."""
    out = []
    fa, fb = a.floor, b.floor
    for i in range(len(a)):
        e = {t: v for t, v in zip(a.ids[i].tolist(), a.logprobs[i].tolist(), strict=True) if t >= 0}
        v = {t: x for t, x in zip(b.ids[i].tolist(), b.logprobs[i].tolist(), strict=True) if t >= 0}
        for side, c in ((e, a), (v, b)):
            if not np.isnan(c.sampled_logprobs[i]):
                side.setdefault(int(c.sampled_ids[i]), float(c.sampled_logprobs[i]))
        for t in e.keys() | v.keys():
            if t in e and t in v:
                out.append(e[t] - v[t])
            elif t in e and e[t] > fb[i]:
                out.append(e[t] - fb[i])
            elif t in v and v[t] > fa[i]:
                out.append(-(v[t] - fa[i]))
    return out


@quick
@given(st.integers(0, 1000), st.integers(1, 8), st.integers(1, 8), st.floats(0, 1))
def test_pairs_equal_the_plain_form(seed: int, k: int, width: int, size: float) -> None:
    z = logits(5, seed, vocab=30)
    ids = draw(z, Sampler(1.0), seed)
    a, b = record(z, ids, k), record(noisy(z, seed, size), ids, width)
    pairs = distance.pair(a, b)
    assert sorted(r for _, r in told(pairs)) == pytest.approx(sorted(slow_pair(a, b)))
    assert distance.positions_over(pairs, -1.0).tolist() == list(range(5))
    back = distance.pair(b, a)
    assert distance.mae_k(pairs) == pytest.approx(distance.mae_k(back))
    assert distance.max_abs(pairs) == pytest.approx(max(map(abs, slow_pair(a, b))))


def test_a_censored_token_within_the_floor_is_no_evidence() -> None:
    a = make_columns([1], [-0.1], [[1, 2]], [[-0.1, -4.0]])
    b = make_columns([1], [-0.1], [[1, 3]], [[-0.1, -4.0]])
    assert distance.mae_k(distance.pair(a, b)) == 0.0
    assert len(told(distance.pair(a, b))) == 1
    high = make_columns([1], [-1.0], [[1, 2]], [[-1.0, -0.5]])
    low = make_columns([1], [-1.0], [[1, 3]], [[-1.0, -4.0]])
    assert distance.max_abs(distance.pair(high, low)) == pytest.approx(3.5)


def test_nothing_to_compare_is_nan() -> None:
    empty = make_columns([1], [None], [[]], [[]])
    pairs = distance.pair(empty, empty)
    assert math.isnan(distance.mae_k(pairs))
    assert math.isnan(distance.max_abs(pairs))
    assert math.isnan(distance.tz(pairs, FLAT))
    assert np.isnan(distance.worst_positions(pairs, FLAT)).all()
    none = distance.pair(empty.head(0), empty.head(0))
    assert math.isnan(distance.kl_tail(none))
    assert math.isnan(distance.shape(none).slope)
    with pytest.raises(ValueError, match="positions"):
        distance.pair(empty, empty.head(0))


@quick
@given(st.integers(0, 500))
def test_tz_equals_the_plain_form(seed: int) -> None:
    z = logits(4, seed)
    ids = draw(z, Sampler(1.0), seed)
    pairs = distance.pair(record(z, ids, 6), record(noisy(z, seed, 0.1), ids, 9))
    terms = []
    for depth, r in told(pairs):
        scale = 0.05 if depth < -6.0 else 0.04 if depth < -3.0 else 0.03
        terms.append(math.log(1 + (r / scale) ** 2 / 4))
    assert distance.tz(pairs, FLAT) == pytest.approx(sum(terms) / len(terms))
    assert np.nanmean(distance.worst_positions(pairs, FLAT)) > 0


def test_sigma_grows_with_the_noise_of_its_bin() -> None:
    z = logits(60, 3)
    ids = draw(z, Sampler(1.0), 3)
    other = z + np.where(z < np.median(z), 0.3, 0.01) * np.random.default_rng(1).normal(size=z.shape)
    pairs = distance.pair(record(z, ids, VOCAB), record(other, ids, VOCAB))
    sigma = distance.fit_sigma([pairs], bins=4)
    assert len(sigma.scales) == len(sigma.edges) + 1 == 4
    assert sigma.scales[0] > 5 * sigma.scales[-1]
    equal = distance.pair(record(z, ids, 5), record(z, ids, 5))
    assert min(distance.fit_sigma([equal], bins=4).scales) == distance.LEAST_SCALE
    with pytest.raises(ValueError, match="no honest pairs"):
        distance.fit_sigma([])
    with pytest.raises(ValueError, match="for 100000 bins"):
        distance.fit_sigma([equal], bins=100_000)


def test_kl_is_exact_on_whole_rows_and_never_above_on_parts() -> None:
    z, y = logits(8, 4), noisy(logits(8, 4), 9, 0.4)
    p, q = log_softmax(z), log_softmax(y)
    truth = float((np.exp(p) * (p - q)).sum(axis=1).mean())
    ids = draw(z, Sampler(1.0), 4)
    whole = distance.kl_tail(distance.pair(record(z, ids, VOCAB), record(y, ids, VOCAB)))
    assert whole == pytest.approx(truth, abs=1e-5)
    part = distance.kl_tail(distance.pair(record(z, ids, 5), record(y, ids, 5)))
    assert 0.0 < part <= truth + 1e-6


def test_slope_tells_a_hidden_temperature() -> None:
    z = logits(20, 5)
    ids = draw(z, Sampler(1.0), 5)
    hot = distance.shape(distance.pair(record(z / 1.1, ids, 30), record(z, ids, 30)))
    assert hot.slope == pytest.approx(1 / 1.1 - 1, abs=1e-4)
    same = distance.shape(distance.pair(record(z, ids, 30), record(z, ids, 30)))
    assert (same.slope, same.bias) == (0.0, 0.0)


def test_bias_tells_lifted_tokens() -> None:
    z = logits(30, 6)
    ids = draw(z, Sampler(1.0), 6)
    lifted = z.copy()
    lifted[np.arange(30), ids] += 0.5
    assert distance.shape(distance.pair(record(lifted, ids, 20), record(z, ids, 20))).bias > 0.3
    lone = make_columns([1, 1], [None, None], [[2, 3], [2, 3]], [[-1.0, -2.0]] * 2)
    assert math.isnan(distance.shape(distance.pair(lone, lone)).bias)


def test_a_prefilled_text_has_distance_zero() -> None:
    """What every distance is blind to: another model's tokens, scored by the right one."""
    z = logits(50, 8)
    foreign = [int(t) for t in np.random.default_rng(1).integers(0, VOCAB, 50)]
    own = record(z, foreign, 20)
    assert distance.mae_k(distance.pair(own, own)) == 0.0
    assert gonka.go(own, own) == 0.0


def test_alignment_names_the_first_difference() -> None:
    a = from_maps([1, 2, 3], [{1: -1.0}] * 3)
    assert align.misalignment(a, a, "raw", "raw") is None
    other = align.misalignment(a, from_maps([1, 9, 3], [{1: -1.0}] * 3), "raw", "raw")
    assert other is not None
    assert (other.reason, other.position) == ("replay_not_enforced", 1)
    assert "sent 2, came back 9" in other.detail
    short = align.misalignment(a, a.head(2), "raw", "raw")
    assert short is not None
    assert "3 tokens were sent, 2 came back" in short.detail


@pytest.mark.parametrize(
    ("mine", "theirs", "plain", "reason"),
    [
        ("raw", "processed", False, "modes_differ"),
        ("processed", "raw", False, "modes_differ"),
        ("raw", "processed", True, None),
        ("unknown", "raw", True, "mode_unknown"),
        ("raw", "unknown", False, "mode_unknown"),
    ],
)
def test_unlike_modes_are_not_compared(mine: str, theirs: str, plain: bool, reason: str | None) -> None:
    a = from_maps([1], [{1: -1.0}])
    found = align.misalignment(a, a, mine, theirs, same_when_plain=plain)
    assert (found.reason if found else None) == reason
