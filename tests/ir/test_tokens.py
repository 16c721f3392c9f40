"""The token_id:N codec, and the columns of a response."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logproof.ir import tokens
from logproof.ir.facts import Facts, Plugin
from logproof.ir.response import Choice, Finish, Response, Tokens, TopK, Usage
from logproof.ir.tokens import MAX_ID, placeholder, placeholder_id, placeholder_ids

ODD = [
    *("Hello", "42", "-1", "1_0", " 7", "٣", "token_id:", "token_id:-1", "token_id: 9", " token_id:282", ""),
    *("1token_id:2", "token_1id:2", "token_id:1,token_id:2", "token_id:1,2"),
    *("token_id:9 ", "token_id:09", "token_id:1_0", "token_id:٣", "token_id:2147483648", "token_id:99999999999"),
]
"""Texts that look like an id and are none."""


@given(st.integers(0, 2**31 - 1))
def test_an_id_survives(token_id: int) -> None:
    assert placeholder_id(placeholder(token_id)) == token_id


@pytest.mark.parametrize("bad", [-1, 2**31, True])
def test_what_is_no_id_is_refused(bad: int) -> None:
    with pytest.raises(ValueError, match="no token id"):
        placeholder(bad)


@pytest.mark.parametrize("text", ODD)
def test_only_the_exact_form_is_an_id(text: str) -> None:
    assert placeholder_id(text) is None


@given(st.text())
def test_any_text_is_an_id_only_in_its_one_spelling(text: str) -> None:
    found = placeholder_id(text)
    assert found is None or placeholder(found) == text


def top(ids: list[int] | None = None, texts: tuple[str | None, ...] | None = None) -> TopK:
    return TopK(
        np.array([0, 0, 2]), np.array([-0.1, -2.0]), np.array(ids, dtype=np.int64) if ids else None, None, texts
    )


def test_entries_by_id() -> None:
    assert top([7, 9]).by_id(1) == {7: -0.1, 9: -2.0}
    assert top([7, 9]).by_id(0) == {}
    with pytest.raises(ValueError, match="keyed by text"):
        top().by_id(1)


def test_entries_by_text_only_where_texts_tell_tokens_apart() -> None:
    assert top(texts=("a", "b")).by_text(1) == {"a": -0.1, "b": -2.0}
    assert top(texts=("a", "b")).span(1) == slice(0, 2)
    with pytest.raises(ValueError, match="two tokens of the same text"):
        top(texts=("a", "a")).by_text(1)
    for texts in (None, ("a", None)):
        with pytest.raises(ValueError, match="no texts"):
            top(texts=texts).by_text(1)


def test_text_of_the_only_choice() -> None:
    choice = Choice(0, "x", Finish("stop", "stop"))
    assert Response((choice,), Usage()).text == "x"
    with pytest.raises(ValueError, match="2 choices"):
        _ = Response((choice, choice), Usage()).text
    assert len(Tokens(np.zeros(3), "raw")) == 3


def test_facts_answer_about_fields_and_plugin() -> None:
    facts = Facts(fields={"/a": ("x",)}, plugin=Plugin("1", enforced_replay=True))
    assert facts.has_field("/a", "x")
    assert not facts.has_field("/a", "y")
    assert not facts.has_field("/b", "x")
    assert facts.has_plugin("enforced_replay")
    assert not facts.has_plugin("logprobs_mode")
    assert not Facts().has_plugin("enforced_replay")


@given(st.lists(st.integers(0, MAX_ID).map(placeholder) | st.sampled_from(ODD)))
def test_many_placeholders_are_read_as_one_by_one(texts: list[str]) -> None:
    one_by_one = [placeholder_id(text) for text in texts]
    assert placeholder_ids(texts) == (None if None in one_by_one else one_by_one)


def test_what_is_remembered_of_placeholders_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MOST_READ", 3)
    monkeypatch.setattr(tokens, "_read", tokens._Read())
    for start in range(5):
        ids = list(range(start, start + 5))
        assert placeholder_ids([placeholder(i) for i in ids]) == ids
        assert len(tokens._read) <= 3
