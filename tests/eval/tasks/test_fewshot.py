from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logproof.errors import DatasetError
from logproof.eval.tasks.datasets import Doc
from logproof.eval.tasks.fewshot import draw
from logproof.eval.tasks.rows import Gsm8kRow


def doc(i: int, row: Gsm8kRow | None = None) -> Doc[Gsm8kRow]:
    row = row or Gsm8kRow(f"question {i}", f"#### {i}")
    return Doc(i, f"f:{i}", row.digest(), row)


POOL = [doc(i) for i in range(8)]


def test_the_draw_is_fixed_by_its_seed_and_no_order_of_the_pool() -> None:
    row = doc(99)
    drawn = draw(row, POOL, 4, 7)
    assert drawn == draw(row, POOL[::-1], 4, 7)
    assert [d.index for d in drawn] != [d.index for d in draw(row, POOL, 4, 8)]
    assert [d.digest for d in draw(row, POOL, 2, 7)] == [d.digest for d in drawn[:2]]


def test_a_pool_that_is_the_evaluated_set_never_gives_the_row_itself() -> None:
    for row in POOL:
        assert row.digest not in {d.digest for d in draw(row, POOL, 7, 0)}
    with pytest.raises(DatasetError, match="8 few-shot rows asked, the pool has 7 besides the row itself"):
        draw(POOL[0], POOL, 8, 0)


def test_a_twin_under_another_index_or_spacing_is_still_the_row_itself() -> None:
    row = doc(0)
    twin = doc(50, msgspec.structs.replace(row.row, question=f"  {row.row.question} "))
    with pytest.raises(DatasetError, match="the pool has 0"):
        draw(row, [twin], 1, 0)


def test_no_shots_need_no_pool() -> None:
    assert draw(doc(0), [], 0, 0) == []


@given(st.integers(0, 7), st.integers(), st.integers(0, 7))
def test_draws_are_different_rows_of_the_pool(row: int, seed: int, shots: int) -> None:
    drawn = draw(POOL[row], POOL, shots, seed)
    assert len({d.digest for d in drawn}) == shots
