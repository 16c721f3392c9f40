"""Text offsets and counts: what a scored completions reply holds twice must agree."""

from __future__ import annotations

import msgspec
import pytest

from logproof.dialects.common.completions_checks import check_counted, check_offsets
from logproof.errors import BadReply
from logproof.ir.request import Input, Request, Schedule, Scoring


@pytest.mark.parametrize(
    ("tokens", "offsets"),
    [
        (["a", " bc", "d"], [0, 1, 4]),
        (["猫", "é", "x"], [0, 1, 2]),
        (["猫", "é", "x"], [0, 3, 5]),
        (["", "", "🦊", "x"], [5, 5, 5, 6]),
        (["一", "", "", "的"], [6, 7, 7, 8]),
        (["\ufffd", "\ufffd", "a"], [0, 1, 1]),
        (["bytes:\\xe2\\x80", "bytes:\\x99", "a"], [0, 0, 1]),
        (["token_id:5", "token_id:6"], [0, 1]),
        (["a", "bc", "d"], [-1, -1, -1]),
        (["a", "bc", "d"], [0, 0, 0]),
        (["a"], [7]),
        (["a"], None),
        ([], []),
    ],
)
def test_offsets_that_fit(tokens: list[str], offsets: list[int] | None) -> None:
    check_offsets(tokens, offsets, "/x")


@pytest.mark.parametrize(
    ("tokens", "offsets", "said"),
    [
        (["a", " bc", "d"], [0, 2, 4], r"text_offset/1: the token 'a' takes 2"),
        (["a", "d", "d"], [0, 4, 4], "text_offset/1"),
        (["d", "d"], [4, 4], "text_offset/1"),
        (["a", "b"], [1, 0], r"text_offset/1: .* begins before"),
        (["token_id:5", "token_id:6"], [1, 0], "begins before"),
        (["a", "b"], [0], "1 entries for 2 tokens"),
    ],
)
def test_offsets_that_do_not(tokens: list[str], offsets: list[int], said: str) -> None:
    with pytest.raises(BadReply, match=said):
        check_offsets(tokens, offsets, "/x")


@pytest.mark.parametrize(
    ("reported", "named", "stream", "known"),
    [
        (3, False, False, True),
        (3, False, True, True),
        (0, False, False, True),
        (None, True, False, True),
        (None, True, True, False),
        (None, False, False, False),
    ],
)
def test_scored_tokens_are_counted_by_something_else(
    reported: int | None, named: bool, stream: bool, known: bool
) -> None:
    plain = Request("m", Input(text="x"), schedule=Schedule(stream=stream))
    check_counted(plain, reported, named=named)
    for scoring in (Scoring(sampled=0), Scoring(label_ids=(1,))):
        scored = msgspec.structs.replace(plain, scoring=scoring)
        if known:
            check_counted(scored, reported, named=named)
            continue
        with pytest.raises(BadReply, match="how many tokens were sampled"):
            check_counted(scored, reported, named=named)
