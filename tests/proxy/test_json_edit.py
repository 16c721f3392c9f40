from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logproof.proxy import json_edit

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(), VALUES, max_size=6)
STYLES = st.sampled_from([(None, (",", ":")), (None, (", ", ": ")), (2, (",", " : ")), ("\t", (" ,", ":"))])


def text_of(value: object, style: tuple[int | str | None, tuple[str, str]], ascii_only: bool) -> bytes:
    return json.dumps(value, indent=style[0], separators=style[1], ensure_ascii=ascii_only).encode()


@given(OBJECTS, STYLES, st.booleans())
def test_members_are_where_json_has_them(
    value: dict[str, object], style: tuple[int, tuple[str, str]], plain: bool
) -> None:
    text = text_of(value, style, plain)
    spans = json_edit.members(text)
    assert {name: json.loads(text[a:b]) for name, (a, b) in spans.items()} == value
    assert list(spans) == list(value)


@given(st.lists(VALUES, max_size=6), STYLES)
def test_elements_are_where_json_has_them(value: list[object], style: tuple[int, tuple[str, str]]) -> None:
    text = text_of(value, style, False)
    assert [json.loads(text[a:b]) for a, b in json_edit.elements(text)] == value


@given(OBJECTS, OBJECTS, STYLES)
def test_members_are_set_and_the_others_stay(
    old: dict[str, object], new: dict[str, object], style: tuple[int, tuple[str, str]]
) -> None:
    made = json_edit.with_members(text_of(old, style, True), {k: json.dumps(v).encode() for k, v in new.items()})
    assert json.loads(made) == {**old, **new}


def test_bytes_outside_the_edit_stay() -> None:
    text = b'{ "a" : 1.0e-05 ,"k\\u00e9y":"\\u4f60", "b":[1 ,2]}'
    assert json_edit.with_members(text, {"b": b"null"}) == b'{ "a" : 1.0e-05 ,"k\\u00e9y":"\\u4f60", "b":null}'
    assert json_edit.with_members(text, {"c": b"5"}) == text[:-1] + b',"c":5}'
    assert json_edit.with_members(b" {} ", {"c": b"5"}) == b' {"c":5} '


@pytest.mark.parametrize(
    "text",
    [b"", b"[1]", b"{", b"\xff", b'{"a":1} x', b'{"a":1,"a":1}', b'{"a":1,"a":2}', b'{"a":1,"b":2,"a":1}', b"[" * 5000],
)
def test_what_cannot_be_edited_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        json_edit.members(text)


def test_only_arrays_have_elements() -> None:
    with pytest.raises(ValueError):
        json_edit.elements(b'{"a":1}')
