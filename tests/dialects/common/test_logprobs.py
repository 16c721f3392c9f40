"""Columns: the one way in which a logprob becomes a number."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logproof.dialects.common import logprobs
from logproof.errors import BadReply, SpoiledTopList


def test_null_is_unscored_only_where_it_may_be() -> None:
    column = logprobs.logprobs([None, -1.0, -9999.0, 0.0], "/x", unscored=1)
    assert math.isnan(column[0])
    assert column[1:].tolist() == [-1.0, -math.inf, 0.0]
    with pytest.raises(BadReply, match="/x/1: null at a scored position"):
        logprobs.logprobs([None, None], "/x", unscored=1)


@pytest.mark.parametrize("value", [0.5, math.inf, -math.inf, math.nan, 1e-3])
def test_what_is_no_logprob_is_refused(value: float) -> None:
    with pytest.raises(BadReply, match="/x/0"):
        logprobs.logprobs([value], "/x", unscored=1)


def test_the_sentinel_is_refused_where_it_means_nothing() -> None:
    with pytest.raises(BadReply, match="-9999.0 is no logprob"):
        logprobs.logprobs([-9999.0], "/x", sentinel=False)


@given(st.lists(st.floats(max_value=0.0, allow_nan=False, allow_infinity=False)))
def test_logprobs_keep_their_values(values: list[float]) -> None:
    column = logprobs.logprobs(values, "/x")
    assert column.tolist() == [-math.inf if v == -9999.0 else v for v in values]


@pytest.mark.parametrize("bad", [-1, 2**31, 2**63 - 1, 2**63, 2**200])
def test_what_is_no_id_is_refused(bad: int) -> None:
    with pytest.raises(BadReply, match="no token id"):
        logprobs.ids([1, bad], "/x")


@given(st.lists(st.integers(0, 2**31 - 1)))
def test_ids_keep_their_values(values: list[int]) -> None:
    assert logprobs.ids(values, "/x").tolist() == values


def test_lengths_must_agree() -> None:
    logprobs.same_length("/x", 2, 2, "ids")
    with pytest.raises(BadReply, match="1 entries for 2 ids"):
        logprobs.same_length("/x", 2, 1, "ids")


Position = tuple[list[int] | None, list[float], list[int] | None, list[str] | None]


def one(position: Position, own: Any, width: int) -> Any:
    return logprobs.top_k([position], width, [own], "/t")


@pytest.mark.parametrize(
    ("position", "own", "width", "message"),
    [
        (([1, 1], [-1, -2], None, None), (1, -1), 2, "listed twice"),
        (([1, 2], [-1, -2], None, None), (3, -1), 2, "not among"),
        (([1, 2], [-1, -2], None, None), (1, -1.5), 2, "two values"),
        (([1, 2], [-1, -2], None, None), (1, -1), 3, "2 entries for a top 3"),
        (([1, 2, 3], [-1, -2, -3], None, None), (1, -1), 1, "3 entries for a top 1"),
        (([1, 2], [-1, -2], None, None), (1, -1), 1, "not the last"),
        (([1], [-1], None, None), None, 1, "unscored position"),
        ((None, [-1], None, ["b"]), ("a", -1), 1, "not among"),
        (([1, 2], [-1, 1], None, None), (1, -1), 2, "no logprob"),
    ],
)
def test_a_position_that_is_not_whole_is_refused(position: Position, own: Any, width: int, message: str) -> None:
    with pytest.raises(BadReply, match=message):
        one(position, own, width)


def test_a_position_is_sorted_by_falling_logprob() -> None:
    top = one(([5, 6, 7], [-2.0, -1.0, -3.0], [2, 1, 9], ["a", "b", "c"]), (7, -3.0), 2)
    assert top.ids.tolist() == [6, 5, 7]
    assert top.logprobs.tolist() == [-1.0, -2.0, -3.0]
    assert top.ranks.tolist() == [1, 2, 9]
    assert top.texts == ("b", "a", "c")


def test_parts_that_are_not_known_everywhere_are_left_out() -> None:
    top = logprobs.top_k([([1], [-1.0], None, None), ([2], [-1.0], [1], ["b"])], 1, [(1, -1.0), (2, -1.0)], "/t")
    assert top.ranks is None
    assert top.texts is None
    text = one((None, [-1.0], None, ["a"]), ("a", -1.0), 1)
    assert text.ids is None
    assert text.texts == ("a",)


def test_a_lone_token_stands_at_width_0() -> None:
    assert len(one(([1], [-1.0], None, None), (1, -1.0), 0).logprobs) == 1


@given(st.data(), st.integers(1, 5))
def test_k_or_k_plus_the_scored_one_below(data: st.DataObject, width: int) -> None:
    values = sorted(data.draw(st.lists(st.floats(-50, 0), min_size=width + 1, max_size=width + 1)), reverse=True)
    ids = list(range(width + 1))
    whole = one((ids, values, None, None), (width, values[-1]), width)
    assert np.diff(whole.offsets).tolist() == [width + 1]
    best = one((ids[:-1], values[:-1], None, None), (0, values[0]), width)
    assert np.diff(best.offsets).tolist() == [width]


@pytest.mark.parametrize(
    ("listed", "raw", "spoiled"),
    [
        ((-0.25, -9999.0), False, True),
        ((-0.25, -9999.0), True, True),
        ((0.0, -9999.0), True, True),
        ((0.0, -9999.0), False, False),
        ((-0.7, -0.69, -9999.0, -9999.0), False, False),
        ((-0.7, -0.9, -9999.0), False, False),
        ((-0.7, -1.5), True, False),
    ],
)
def test_a_list_with_an_impossible_rival_holds_all_mass(listed: tuple[float, ...], raw: bool, spoiled: bool) -> None:
    """Cuts and grammars make rivals impossible and leave no mass over; label scores of a neighbour leave some."""
    with pytest.raises(SpoiledTopList) if spoiled else nullcontext():
        logprobs.check_spoiled(listed, "", raw=raw)
