from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logproof.dialects.common.joined_texts import PARTIAL, first_text, join

P = PARTIAL


@pytest.mark.parametrize(
    ("pieces", "whole", "found"),
    [
        (["The", " cap"], "The cap", ("The", " cap")),
        ([P, P, "本", P, P], "日本語", ("", "日", "本", "", "語")),
        ([P, "", P, "a"], "é a", ("", "", "é ", "a")),
        ([P, "", P, " a"], "é a", ("", "", "é", " a")),
        (["a", P], "ab", ("a", "b")),
        (["<s>", "a", "b"], "ab", ("<s>", "a", "b")),
        (["<s>", P, "b"], "éb", ("<s>", "é", "b")),
        ([P, "a", P, "a"], "xaaya", None),
        ([P, "a"], "a", None),
        ([P], "", None),
        (["a", P], "a", None),
        (["a"], "b", None),
        (["a", None], "ab", None),
        ([], "", ()),
        ([], "a", None),
        ([P, "b", P, "c"], "1bc2", None),
        ([P + "x"], P + "x", (P + "x",)),
    ],
)
def test_join(pieces: list[str | None], whole: str, found: tuple[str, ...] | None) -> None:
    assert join(pieces, whole) == found


@given(st.lists(st.tuples(st.text(max_size=4), st.booleans())))
def test_what_joins_joins_to_the_whole(parts: list[tuple[str, bool]]) -> None:
    """Any text cut anywhere, some cuts inside a character: an answer joins, and keeps the whole pieces."""
    whole = "".join(text for text, _ in parts)
    pieces: list[str] = []
    for text, partial in parts:
        pieces += [P, P] if partial and text else [text]
    found = join(pieces, whole)
    if found is None:
        return
    assert "".join(found) == whole
    assert all(f == p for f, p in zip(found, pieces, strict=True) if PARTIAL not in p)


@pytest.mark.parametrize(
    ("prompt", "rest", "first"),
    [
        ("Hi there", (" there",), "Hi"),
        ("中国", ("国",), "中"),
        ("🦊", ("", "", "🦊"), ""),
        ("Hi", ("x",), None),
        (None, ("x",), None),
        ("Hi", (None,), None),
        ("Hi", (), "Hi"),
    ],
)
def test_the_first_text_is_what_the_rest_leaves(prompt: str | None, rest: Any, first: str | None) -> None:
    assert first_text(prompt, rest) == first
