from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logproof.errors import BadReply
from logproof.eval.score.option_scores import (
    OptionScore,
    metric_values,
    option_score,
    perplexity,
    perplexity_of,
    rank,
    span_sum,
)
from logproof.ir.response import Meaning, Tokens

NAN, INF = math.nan, math.inf


def tokens(*values: float, meaning: Meaning = "raw") -> Tokens:
    return Tokens(np.array(values, dtype=np.float64), meaning)


def option(total: float, *, tokens: int = 1, chars: int = 1, size: int = 1, uncond: float | None = None) -> OptionScore:
    return OptionScore(total, tokens, chars, size, uncond)


def test_the_sum_is_over_the_option_and_not_shifted() -> None:
    assert span_sum(tokens(NAN, -1, -2, -3, -4), 3) == -7


def test_an_impossible_token_makes_the_sum_minus_infinity() -> None:
    assert span_sum(tokens(NAN, -1, -INF, -1), 1) == -INF


@pytest.mark.parametrize(
    ("column", "start", "said"),
    [(tokens(NAN, -1), 2, "no scored token"), (tokens(NAN, -1), 0, "unscored"), (tokens(NAN), 1, "no scored token")],
)
def test_empty_and_unscored_spans_are_refused(column: Tokens, start: int, said: str) -> None:
    with pytest.raises(BadReply, match=said):
        span_sum(column, start)


def test_masked_logprobs_are_never_summed() -> None:
    with pytest.raises(BadReply, match="grammar"):
        span_sum(tokens(NAN, -1, meaning="constrained"), 1)


@given(st.lists(st.floats(-50, 0), min_size=1, max_size=200))
def test_sums_are_correctly_rounded_in_any_order(values: list[float]) -> None:
    assert span_sum(tokens(NAN, *values), 1) == span_sum(tokens(NAN, *values[::-1]), 1) == math.fsum(values)


def test_lengths_are_those_of_the_option_without_the_joining_space() -> None:
    scored = option_score("猫", tokens(NAN, -1, -2), 1)
    assert (scored.total, scored.tokens, scored.chars, scored.bytes) == (-3, 2, 1, 3)


def test_character_and_byte_norms_choose_differently() -> None:
    options = [option_score("猫", tokens(NAN, -3.0), 1), option_score("dog", tokens(NAN, -4.5), 1)]
    values = metric_values(options)
    assert values["acc_char"] == [-3.0, -1.5]
    assert values["acc_byte"] == [-1.0, -1.5]
    assert {m: rank(v).best for m, v in values.items()} == {"acc": 0, "acc_char": 1, "acc_byte": 0, "acc_token": 0}


def test_token_norm_divides_by_the_span() -> None:
    values = metric_values([option(-3, tokens=1), option(-4, tokens=2)])
    assert values["acc_token"] == [-3, -2]
    assert "acc_uncond" not in values


def test_the_unconditional_norm_subtracts_the_neutral_sum_of_every_option() -> None:
    values = metric_values([option(-3, uncond=-1), option(-4, uncond=-3.5)])
    assert values["acc_uncond"] == [-2, -0.5]
    assert "acc_uncond" not in metric_values([option(-3, uncond=-1), option(-4, uncond=-INF)])
    assert "acc_uncond" not in metric_values([option(-3, uncond=-1), option(-4)])


def test_ties_go_to_the_first_and_are_told() -> None:
    assert (rank([-2.0, -1.0, -1.0]).best, rank([-2.0, -1.0, -1.0]).tied) == (1, True)
    assert rank([-1.0, -2.0]).tied is False
    assert rank([-INF, -2.0]).best == 1


def test_options_that_are_all_impossible_cannot_be_ranked() -> None:
    with pytest.raises(BadReply, match="impossible"):
        rank([-INF, -INF])


def test_perplexity_counts_scored_tokens_only() -> None:
    assert perplexity(np.array([NAN, -1, -1, -1])) == pytest.approx(math.e)
    assert perplexity(np.array([-1.0, -1.0])) == pytest.approx(math.e)
    assert perplexity(np.array([NAN, -INF, -1])) == INF


@pytest.mark.parametrize("values", [[], [NAN], [NAN, -1, NAN]])
def test_perplexity_of_nothing_or_of_holes_is_refused(values: list[float]) -> None:
    with pytest.raises(BadReply):
        perplexity(np.array(values))


def test_perplexity_beyond_floats_is_infinite() -> None:
    assert perplexity_of(-9999.0, 1) == INF
