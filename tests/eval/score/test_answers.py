from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logproof.eval.score.answers import equal, flexible, strict


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2 + 2 = 4\n#### 4", "4"),
        ("#### -12\n#### 3", "-12"),
        ("####1,234.50", "1,234.50"),
        ("#### $18", "$18"),
        ("#### four", None),
        ("### 4", None),
        ("", None),
        ("#### 4.", "4"),
    ],
)
def test_strict_reads_behind_the_mark(text: str, number: str | None) -> None:
    assert strict(text) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("Let me think.\n\nThe answer is 7", "7"),
        ("first 3, then 14.", "14"),
        ("it costs $1,200.", "$1,200"),
        ("10-3", "3"),
        ("a total of -3", "-3"),
        ("x=5, so .5", ".5"),
        ("none", None),
        ("", None),
    ],
)
def test_flexible_takes_the_last_number(text: str, number: str | None) -> None:
    assert flexible(text) == number


@pytest.mark.parametrize(
    ("got", "gold", "same"),
    [
        ("18", "18", True),
        ("18.0", "18", True),
        ("$1,200", "1200", True),
        ("1,200", "1,200", True),
        ("-3", "3", False),
        ("18.5", "18", False),
        (None, "18", False),
        ("abc", "18", False),
        ("Infinity", "Infinity", False),
        ("7", "seven", False),
    ],
)
def test_numbers_are_compared_by_value(got: str | None, gold: str, same: bool) -> None:
    assert equal(got, gold) is same


@given(st.integers(-(10**12), 10**12))
def test_a_written_number_is_found_by_both(n: int) -> None:
    text = f"The working is long.\n#### {n:,}"
    assert equal(strict(text), str(n))
    assert equal(flexible(text), str(n))


@given(st.text(max_size=200))
def test_any_text_gives_a_number_or_none(text: str) -> None:
    for found in (strict(text), flexible(text)):
        assert found is None or any(c.isdigit() for c in found)
