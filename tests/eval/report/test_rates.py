from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logproof.eval.report.rates import avg_at_n, maj_at_k, pass_at_k, pass_hat_k, rate


def test_a_rate_has_its_denominator_and_error() -> None:
    found = rate([1, 0, 0, 1])
    assert found is not None
    assert (found.value, found.n) == (0.5, 4)
    assert found.se == pytest.approx(math.sqrt(0.5 * 0.5 / 3))


def test_too_few_values_leave_error_or_rate_out() -> None:
    one = rate([1.0])
    assert one is not None
    assert one.se is None
    assert rate([]) is None


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=50))
def test_mean_and_error_are_the_textbook_ones(values: list[float]) -> None:
    found = rate(values)
    assert found is not None
    assert found.value == pytest.approx(np.mean(values), abs=1e-9)
    assert found.se == pytest.approx(np.std(values, ddof=1) / math.sqrt(len(values)), abs=1e-9)


@given(st.lists(st.booleans(), min_size=1, max_size=7), st.integers(1, 7))
def test_pass_figures_are_the_share_of_subsets(hits: list[bool], k: int) -> None:
    n = len(hits)
    if n < k:
        assert pass_at_k(sum(hits), n, k) is None
        assert pass_hat_k(sum(hits), n, k) is None
        return
    subsets = list(combinations(hits, k))
    assert pass_at_k(sum(hits), n, k) == pytest.approx(sum(any(s) for s in subsets) / len(subsets))
    assert pass_hat_k(sum(hits), n, k) == pytest.approx(sum(all(s) for s in subsets) / len(subsets))


@pytest.mark.parametrize(
    ("answers", "right", "k", "value"),
    [
        (["7", "7", "3"], [True, True, False], 3, 1.0),
        (["7", "3", "3"], [True, False, False], 3, 0.0),
        (["7", "3"], [True, False], 2, 0.5),
        (["7", "3", "5", None], [True, False, False, False], 4, 1 / 3),
        ([None, None], [False, False], 2, 0.0),
        ([None, "7"], [False, True], 2, 1.0),
        (["3", "7", "7"], [False, True, True], 1, 0.0),
        (["7"], [True], 2, None),
    ],
)
def test_majority_votes(answers: list[str | None], right: list[bool], k: int, value: float | None) -> None:
    assert maj_at_k(answers, right, k) == (pytest.approx(value) if value is not None else None)


def test_averages_of_draws() -> None:
    assert avg_at_n(3, 4) == 0.75
    assert avg_at_n(0, 0) is None


@pytest.mark.parametrize("call", [(5, 4, 1), (-1, 4, 1), (1, 4, 0)])
def test_counts_that_cannot_be_are_refused(call: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="hits"):
        pass_at_k(*call)


def test_votes_need_a_judgement_each_and_a_width() -> None:
    with pytest.raises(ValueError, match="judgements"):
        maj_at_k(["7"], [], 1)
    with pytest.raises(ValueError, match="at least 1"):
        maj_at_k(["7"], [True], 0)
