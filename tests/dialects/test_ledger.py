"""The ledger: every active leaf decided, every body key explained, all refusals at once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logproof.dialects.ledger import UNCONFIRMED, Constant, Decision, Ledger, resolve
from logproof.errors import RequestRefused


def ledger(drop: tuple[str, ...] = (), **active: object) -> Ledger:
    return Ledger("d", {k.replace("__", "."): v for k, v in active.items()}, drop)


def test_a_sent_leaf_stands_at_its_pointer() -> None:
    made = ledger(a__b=1, c=0, unset_=2)
    made.send("a.b", "/x/y")
    made.send("c", "/z", [0])
    made.send("not.active", "/w")
    made.noop("unset_", "because")
    made.noop("nobody", "because")
    assert made.close() == (
        Decision("a.b", "sent", pointer="/x/y"),
        Decision("c", "sent", pointer="/z"),
        Decision("unset_", "no-op", reason="because"),
    )
    assert made.body == {"x": {"y": 1}, "z": [0]}


def test_all_refusals_come_at_once_in_leaf_order() -> None:
    made = ledger(a=1, b=2, c=3, d=4)
    made.refuse("c", "third", "e")
    made.send("b", "/b")
    made.refuse_all({"a": "first (use e)", "zzz": "inactive"})
    with pytest.raises(RequestRefused) as caught:
        made.close()
    assert caught.value.refusals == (
        ("a", "first (use e)"),
        ("c", "third (use e)"),
        ("d", "the dialect makes no decision about it"),
    )
    assert str(caught.value).startswith("d refuses this request: a: first")


def test_the_way_out_is_not_said_twice() -> None:
    made = ledger(a=1)
    made.refuse("a", "ask for vllm_native", "vllm_native")
    with pytest.raises(RequestRefused, match=r"a: ask for vllm_native$"):
        made.close()


def test_a_first_refusal_stands_whatever_follows() -> None:
    made = ledger(a=1)
    made.refuse("a", "no")
    made.refuse("a", "another")
    made.send("a", "/a")
    with pytest.raises(RequestRefused, match="a: no"):
        made.close()


def test_a_leaf_that_may_be_dropped_is_dropped_on_record() -> None:
    made = ledger(drop=("a",), a=1, b=2)
    made.refuse("a", "no")
    made.send("b", "/b")
    assert made.close()[0] == Decision("a", "dropped", reason="no")


def test_dropping_allows_no_other_leaf() -> None:
    made = ledger(drop=("a",), a=1, b=2)
    made.refuse("a", "no")
    made.refuse("b", "no")
    with pytest.raises(RequestRefused) as caught:
        made.close()
    assert caught.value.refusals == (("b", "no"),)


def test_constants_are_declared() -> None:
    made = ledger(a=1)
    made.send("a", "/a")
    made.constant("/k/l", True, "why")
    made.close()
    assert made.body == {"a": 1, "k": {"l": True}}
    assert made.constants == [Constant("/k/l", "why")]


def test_a_stray_key_is_the_dialects_fault() -> None:
    made = ledger(a=1)
    made.send("a", "/a/b")
    made.body["a"]["stray"] = 1  # type: ignore[index]
    made.body["e/x"] = {}
    with pytest.raises(AssertionError, match=r"nothing explains /a/stray, /e~1x"):
        made.close()


def test_an_overwritten_or_lost_pointer_is_the_dialects_fault() -> None:
    made = ledger(a=1)
    made.send("a", "/a")
    made.body["a"] = 2
    with pytest.raises(AssertionError, match="/a was overwritten"):
        made.close()


def test_a_pointer_at_which_nothing_stands_is_the_dialects_fault() -> None:
    made = ledger(a=1)
    made.send("a", "/a")
    del made.body["a"]
    with pytest.raises(AssertionError, match="nothing stands at /a"):
        made.close()
    covering = ledger(a=1)
    covering.covered("a", "/b/c")
    with pytest.raises(AssertionError, match="nothing stands at /b/c"):
        covering.close()


def test_a_pointer_through_a_value_is_the_dialects_fault() -> None:
    made = ledger(a=1, b=2)
    made.send("a", "/a")
    with pytest.raises(AssertionError, match="runs through a value"):
        made.send("b", "/a/b")


def test_covered_leaves_are_sent_within_what_stands() -> None:
    made = ledger(a=1)
    made.constant("/k", [1], "why")
    made.covered("a", "/k")
    made.covered("inactive", "/k")
    assert made.close() == (Decision("a", "sent", pointer="/k"),)


def test_options_are_sent_refused_or_pointed_to_their_leaf() -> None:
    names = {"options.min_p": 0.1, "options.a/b~c": 2, "options.temperature": 1, "options.guided_json": {}}
    made = Ledger("d", {**names, "options.min_q": 1, "options.null": None, "options.deep": 3})
    made.options(["min_p", "a/b~c", "null", "deep"], {"temperature": "sampling.temperature"}, {"deep": "/config"})
    with pytest.raises(RequestRefused) as caught:
        made.close()
    reasons = dict(caught.value.refusals)
    assert reasons["options.temperature"] == "this field belongs to a leaf: set sampling.temperature"
    assert reasons["options.guided_json"] == "this server does not read it; use output.json_schema"
    assert reasons["options.min_q"].endswith("nearest: min_p")
    assert "servers ignore unknown ones" in reasons["options.null"]
    assert made.body == {"min_p": 0.1, "a/b~c": 2, "config": {"deep": 3}}


def test_options_under_one_pointer() -> None:
    made = Ledger("d", {"options.x": 1})
    made.options(["x"], {}, "/sampling_params")
    assert made.close()[0].pointer == "/sampling_params/x"


def test_a_field_that_only_the_engine_reads_is_no_option() -> None:
    made = Ledger("d", {"options.trace_decode_token_ids": [1]})
    made.options(["logprob_token_ids"], {"logprob_token_ids": "scoring.label_ids"})
    with pytest.raises(RequestRefused, match="this server does not read it; use replay.token_ids"):
        made.close()


def test_an_option_that_is_sent_stays_unconfirmed() -> None:
    made = Ledger("d", {"options.x": 1, "options.y": 2}, ["options.y"])
    made.refuse("options.y", "not here")
    made.options(["x", "y"], {})
    assert [(d.leaf, d.kind, d.reason) for d in made.close()] == [
        ("options.x", "sent", UNCONFIRMED),
        ("options.y", "dropped", "not here"),
    ]


def test_a_near_leaf_field_is_named_by_its_leaf() -> None:
    made = Ledger("d", {"options.temperatur": 1})
    made.options([], {"temperature": "sampling.temperature"})
    with pytest.raises(RequestRefused, match="nearest: sampling.temperature"):
        made.close()


KEYS = st.text(st.sampled_from("ab/~01"), min_size=1, max_size=4)


@given(st.lists(KEYS, min_size=1, max_size=4), st.integers())
def test_any_key_survives_its_pointer(keys: list[str], value: int) -> None:
    body: Any = value
    for key in reversed(keys):
        body = {key: body}
    pointer = "".join("/" + k.replace("~", "~0").replace("/", "~1") for k in keys)
    assert resolve(body, pointer) == value


def test_resolve_walks_lists_and_refuses_what_is_not_there() -> None:
    assert resolve({"a": [1, (2, {"b": 3})]}, "/a/1/1/b") == 3
    assert resolve({"a": 1}, "") == {"a": 1}
    for pointer in ("/b", "/a/5", "/a/x", "/a/-1", "/a/0/0"):
        with pytest.raises(KeyError):
            resolve({"a": [1]}, pointer)
