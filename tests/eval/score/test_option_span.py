from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logproof.errors import BadReply
from logproof.eval.score.option_span import MAX_WIDENED, span_by_ids, span_by_texts
from logproof.ir.response import Ids


def ids(*rows: list[int]) -> list[Ids]:
    return [np.array(row, dtype=np.int64) for row in rows]


def test_the_span_begins_behind_the_context() -> None:
    span = span_by_ids([1, 2, 3], ids([1, 2, 3, 7], [1, 2, 3, 8, 9]))
    assert (span.start, span.crossings, span.rule) == (3, 0, "ids")


def test_options_that_begin_alike_do_not_shorten_the_span() -> None:
    assert span_by_ids([1, 2], ids([1, 2, 5, 6], [1, 2, 5, 7])).start == 2


def test_a_token_across_the_join_widens_the_span_of_every_option() -> None:
    span = span_by_ids([1, 2, 3], ids([1, 2, 30], [1, 2, 3, 8]))
    assert (span.start, span.crossings) == (2, 1)


def test_the_reported_join_of_three_signs_and_a_word_is_equal_for_both_choices() -> None:
    span = span_by_ids([1, 5], ids([1, 59], [1, 5, 51]))
    assert (span.start, span.crossings) == (1, 1)


@pytest.mark.parametrize(
    ("context", "options", "said"),
    [
        ([5], [[6, 1], [6, 2]], "nothing conditions"),
        ([], [[6, 1], [6, 2]], "nothing conditions"),
        ([1, 2], [[1, 2, 3], [1, 2]], "option 1 has no token of its own"),
        ([1, *range(100, 100 + MAX_WIDENED + 1)], [[1, 7], [1, 8]], "tokenised otherwise"),
    ],
)
def test_rows_without_a_sound_span_are_refused(context: list[int], options: list[list[int]], said: str) -> None:
    with pytest.raises(BadReply, match=said):
        span_by_ids(context, ids(*options))


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=6),
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=2, max_size=4),
    st.integers(0, 2),
)
def test_the_start_is_one_common_prefix_of_all(context: list[int], tails: list[list[int]], cut: int) -> None:
    rows = [context[: max(len(context) - cut, 0)] + tail for tail in tails]
    try:
        span = span_by_ids(context, ids(*rows))
    except BadReply:
        return
    assert all(row[: span.start] == context[: span.start] for row in rows)
    assert all(len(row) > span.start for row in rows)
    assert (span.start < len(context)) == (span.crossings > 0)


def test_texts_serve_where_there_are_no_ids() -> None:
    span = span_by_texts("Q: a", ["Q: a b", "Q: a cd"], [["Q", ":", " a", " b"], ["Q", ":", " a", " c", "d"]])
    assert (span.start, span.crossings, span.rule) == (3, 0, "texts")


def test_a_text_across_the_join_widens_the_span_of_every_option() -> None:
    span = span_by_texts(">>>", [">>>all", ">>>get"], [[">>", ">all"], [">>", ">", "get"]])
    assert (span.start, span.crossings) == (1, 1)


def test_empty_pieces_behind_the_context_begin_the_option() -> None:
    assert span_by_texts("Q:", ["Q:猫", "Q:x"], [["Q", ":", "", "", "猫"], ["Q", ":", "x"]]).start == 2


@pytest.mark.parametrize("pieces", [["<s>", "", "\n1", "."], ["Q", None, " b"], ["Q:", " b", " c"]])
def test_texts_that_do_not_rebuild_the_prompt_are_refused(pieces: list[str | None]) -> None:
    with pytest.raises(BadReply, match="do not rebuild the prompt"):
        span_by_texts("Q:", ["Q: b"], [pieces])


def test_a_prompt_that_is_only_context_has_no_option() -> None:
    with pytest.raises(BadReply, match="no token of its own"):
        span_by_texts("Q:", ["Q:"], [["Q", ":"]])
