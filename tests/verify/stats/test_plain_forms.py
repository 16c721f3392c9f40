"""The fast forms of the statistics against plainly written ones, token by token."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logproof.verify.artifact.columns import NO_ID, Columns, matches
from logproof.verify.stats import distance, evalue, gonka, plausibility, redraw, sampler_noise
from logproof.verify.stats.drawable_tokens import support
from logproof.verify.stats.sampler import Sampler
from logproof.verify.stats.sampler_profiles import profile
from verify.builders import VOCAB, draw, logits, noisy, quick, record

SPLITMIX = profile("v1-cpu-splitmix")
seeds = st.integers(0, 5000)
tables = st.lists(st.lists(st.integers(0, 12), unique=True, min_size=3, max_size=3), min_size=1, max_size=5)


def cells(c: Columns, i: int) -> dict[int, float]:
    """{id: logprob} of one position, sampled token included."""
    row = {t: v for t, v in zip(c.ids[i].tolist(), c.logprobs[i].tolist(), strict=True) if t != NO_ID}
    if not np.isnan(c.sampled_logprobs[i]):
        row.setdefault(int(c.sampled_ids[i]), float(c.sampled_logprobs[i]))
    return row


@quick
@given(tables, tables, st.sampled_from([0, 2**31, 2**40]))
def test_matches(left: list[list[int]], right: list[list[int]], high: int) -> None:
    """Also beyond 32 bits, and with empty cells on both sides."""
    n = min(len(left), len(right))
    a = np.array([[NO_ID if t == 12 else t + high for t in row] for row in left[:n]], np.int64)
    b = np.array([[NO_ID if t == 12 else t + high for t in row] for row in right[:n]], np.int64)
    plain = [(i, j, k) for i in range(n) for j in range(3) for k in range(3) if a[i, j] == b[i, k] and a[i, j] != NO_ID]
    found = matches(a, b)
    assert sorted(zip((found.left // 3).tolist(), *(c.tolist() for c in found.columns), strict=True)) == plain
    assert np.array_equal(a.ravel()[found.left], b.ravel()[found.right])
    near = found.within(2, 1)
    inside = [p for p in plain if p[1] < 2 and p[2] < 1]
    assert sorted(zip((near.left // 2).tolist(), *(c.tolist() for c in near.columns), strict=True)) == inside
    assert np.array_equal(a[:, :2].ravel()[near.left], b[:, :1].ravel()[near.right])


def two_sides(seed: int, n: int = 6) -> tuple[Columns, Columns]:
    z = logits(n, seed, vocab=40)
    ids = draw(z, Sampler(1.0), seed)
    return record(z, ids, 6), record(noisy(z, seed, 0.3), ids, 9)


@quick
@given(seeds)
def test_shape_and_kl(seed: int) -> None:
    own, theirs = two_sides(seed)
    v_all, r_all, drawn, others, kl = [], [], [], [], 0.0
    for i in range(len(own)):
        e, v = cells(own, i), cells(theirs, i)
        both = e.keys() & v.keys()
        mean_v, mean_r = np.mean([v[t] for t in both]), np.mean([e[t] - v[t] for t in both])
        v_all += [v[t] - mean_v for t in both]
        r_all += [e[t] - v[t] - mean_r for t in both]
        for t in both:
            (drawn if t == own.sampled_ids[i] else others).append(e[t] - v[t])
        p_tail = max(distance.TAIL_LEAST, 1 - sum(math.exp(e[t]) for t in both))
        q_tail = max(distance.TAIL_LEAST, 1 - sum(math.exp(v[t]) for t in both))
        kl += sum(math.exp(e[t]) * (e[t] - v[t]) for t in both) + p_tail * math.log(p_tail / q_tail)
    pairs = distance.pair(own, theirs)
    told = distance.shape(pairs)
    slope = sum(a * b for a, b in zip(v_all, r_all, strict=True)) / sum(a * a for a in v_all)
    assert told.slope == pytest.approx(slope, rel=1e-9, abs=1e-12)
    assert told.bias == pytest.approx(np.mean(drawn) - np.mean(others), rel=1e-9, abs=1e-12)
    assert distance.kl_tail(pairs) == pytest.approx(kl / len(own), rel=1e-9)


@quick
@given(seeds)
def test_gonka_of_known_matches(seed: int) -> None:
    own, theirs = two_sides(seed)
    both = gonka.GonkaLists(own, theirs.narrow(6), distance.pair(own, theirs))
    assert both.go == gonka.go(own, theirs.narrow(6))
    assert both.python == gonka.GonkaLists(own, theirs.narrow(6)).python


@quick
@given(seeds, st.sampled_from([Sampler(1.0), Sampler(0.7, 4), Sampler(1.3, 0, 0.9)]))
def test_margins(seed: int, sampler: Sampler) -> None:
    own, _ = two_sides(seed)
    kept = support(own, sampler, slack=1e-6, vocab_size=40)
    draws = redraw.redraw(own, sampler, SPLITMIX, seed + 1, 3, vocab_size=40)
    steps = sampler_noise.cpu_step_seeds(seed + 1, len(own))
    for i in range(len(own)):
        row = {
            int(t): s + sampler_noise.splitmix_gumbel(steps[i : i + 1], np.array([[t]]))[0, 0]
            for t, s, k in zip(kept.ids[i], kept.scores[i], kept.kept[i], strict=True)
            if k and t != own.sampled_ids[i]
        }
        mine = kept.scores[i, kept.x[i]] + sampler_noise.splitmix_gumbel(
            steps[i : i + 1], own.sampled_ids[i : i + 1, None]
        )
        assert draws.margin[i] == pytest.approx(max(0.0, max(row.values(), default=-math.inf) - mine[0, 0]))
        assert draws.rivals[i] == (max(row, key=lambda t: row[t]) if row else NO_ID)


@quick
@given(seeds)
def test_tempered_and_surprise(seed: int) -> None:
    """Within 2e-6 nat a position: the alternatives' normalisers are summed in float32."""
    own, _ = two_sides(seed, 12)
    drawn = plausibility.outcomes(own, Sampler(1.0), VOCAB)
    wealth, entropies, variances, costs = [0.0] * len(plausibility.TEMPERS), 0.0, 0.0, 0.0
    for q, x in zip(drawn.log_q, drawn.drawn, strict=True):
        least = min(q[:-1])
        for i, c in enumerate(plausibility.TEMPERS):
            other = [*(v / c for v in q[:-1]), q[-1] + least * (1 / c - 1)]
            wealth[i] += other[x] - math.log(sum(map(math.exp, other))) - q[x]
        p = np.exp(q)
        h = float(-(p @ q))
        entropies, costs = entropies + h, costs - q[x]
        variances += float(p @ (q * q)) - h * h
    plain = math.log(np.mean(np.exp(wealth)))
    assert plausibility.tempered_log_e(drawn)[-1] == pytest.approx(plain, abs=2e-6 * len(drawn.drawn))
    assert plausibility.surprise(drawn).z == pytest.approx((costs - entropies) / math.sqrt(variances))


@quick
@given(st.lists(st.integers(0, 3), min_size=1, max_size=20))
def test_margin_bets(bins: list[int]) -> None:
    null = evalue.null_shares([50, 4, 2, 1])
    wealth = []
    for share in evalue.FOREIGN:
        for elsewhere in ([0.0, 1 / 3, 1 / 3, 1 / 3], [0.0, 1 / 2, 1 / 2, 0.0]):
            wealth.append(math.prod(((1 - share) * null[b] + share * elsewhere[b]) / null[b] for b in bins))
    assert evalue.bins_log_e(np.array(bins), null)[-1] == pytest.approx(math.log(np.mean(wealth)))
