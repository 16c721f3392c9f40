from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logproof.errors import StoreError
from logproof.store.digest import call_key, canonical, digest, sample_key

leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(leaves, lambda v: st.lists(v, max_size=4) | st.dictionaries(st.text(), v, max_size=4))


class Point(msgspec.Struct):
    y: int
    x: float


def shuffled(value: object) -> object:
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(list(value))}
    return [shuffled(item) for item in value] if isinstance(value, list) else value


@given(values)
def test_the_order_of_keys_does_not_matter(value: object) -> None:
    assert digest(shuffled(value)) == digest(value)


@given(values, values)
def test_different_content_has_different_digests(one: object, other: object) -> None:
    assert (digest(one) == digest(other)) == (repr_of(one) == repr_of(other))


def repr_of(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{k!r}:{repr_of(value[k])}" for k in sorted(value)) + "}"
    return "[" + ",".join(map(repr_of, value)) + "]" if isinstance(value, list) else repr(value)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, np.array([1.0, math.nan]), np.float64("inf")])
def test_nan_and_infinity_are_refused_at_any_depth(bad: object) -> None:
    with pytest.raises(StoreError, match="no canonical JSON form"):
        digest({"a": [1, {"b": bad}]})


def test_unknown_types_are_refused() -> None:
    with pytest.raises(StoreError, match="object values cannot be stored"):
        digest({"a": object()})


def test_structs_arrays_and_floats_have_one_stated_text() -> None:
    assert canonical(Point(1, 0.1)) == '{"x":0.1,"y":1}'
    assert canonical({"b": (1, 1.0), "a": np.array([1, 2]), "c": np.int32(3)}) == '{"a":[1,2],"b":[1,1.0],"c":3}'
    assert canonical("é\ud800") == '"\\u00e9\\ud800"'
    assert canonical({"z", "a"}) == '["a","z"]'


class Part(msgspec.Struct, tag="part", omit_defaults=True):
    text: str = ""
    score: float | None = None


@given(values, st.builds(Part, text=st.text(), score=st.none() | st.floats(allow_nan=False, allow_infinity=False)))
def test_one_pass_and_the_careful_way_write_the_same(value: object, part: Part) -> None:
    """A null in a value sends it the careful way, whose text must then differ in that null alone."""
    plain = {"part": part, "value": value}
    with_null = canonical({**plain, "~": None})
    assert with_null == canonical({**plain, "~": 0})[:-2] + "null}"


def test_the_word_null_in_a_text_is_no_nan() -> None:
    assert canonical({"a": "null", "b": [1.5]}) == '{"a":"null","b":[1.5]}'


def test_keys_with_one_text_are_not_merged() -> None:
    with pytest.raises(StoreError):
        canonical({1: "a", "1": "b"})


def test_digests_are_stable_across_versions() -> None:
    assert digest({"a": [1, 2.5, None, True, "x"]}) == (
        "61abc20e7087189105f14f2555ec411a574ac276380de770057bbe2f822b5249"
    )


def test_a_call_is_named_by_all_that_decides_its_reply() -> None:
    request = {"prompt": "x", "temperature": 0.0}
    keys = {
        call_key(request, "m", "d"),
        call_key({**request, "temperature": 0.7}, "m", "d"),
        call_key(request, "n", "d"),
        call_key(request, "m", "e"),
        call_key(request, "m", "d", 1),
    }
    assert len(keys) == 5


def test_a_sample_is_named_by_task_row_content_and_repeat() -> None:
    assert len({sample_key("t", "r"), sample_key("u", "r"), sample_key("t", "s"), sample_key("t", "r", 1)}) == 4
