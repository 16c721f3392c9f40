"""validate: what no wire may ever see."""

from __future__ import annotations

import datetime
import math
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logproof.errors import InvalidRequest
from logproof.ir.message import text_message
from logproof.ir.request import Input, Output, Replay, Request, Sampling, Scoring, id_leaves, validate

GOOD = Request("m", Input(text="x"))


def ask(**groups: object) -> Request:
    return msgspec.structs.replace(GOOD, **groups)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (ask(input=Input()), "exactly one of"),
        (ask(input=Input(text="x", token_ids=(1,))), "exactly one of"),
        (ask(input=Input(text="")), "input.text is empty"),
        (ask(input=Input(token_ids=())), "input.token_ids is empty"),
        (ask(input=Input(messages=())), "input.messages is empty"),
        (ask(input=Input(token_ids=(1,), suffix="s")), "input.suffix goes only with input.text"),
        (ask(input=Input(token_ids=(1, -2))), r"input.token_ids\[1\] is no token id: -2"),
        (ask(input=Input(token_ids=(2**31,))), "no token id"),
        (ask(scoring=Scoring(label_ids=(2**31,))), "scoring.label_ids"),
        (ask(scoring=Scoring(label_ids=())), "scoring.label_ids is empty"),
        (ask(scoring=Scoring(label_ids=(3, 3))), "twice"),
        (ask(scoring=Scoring(prompt=-1)), "scoring.prompt is a width"),
        (ask(scoring=Scoring(sampled=-1)), "scoring.sampled is a width"),
        (ask(replay=Replay(())), "replay.token_ids is empty"),
        (ask(replay=Replay((-1,))), "replay.token_ids"),
        (ask(sampling=Sampling(temperature=-0.1)), "temperature is negative"),
        (ask(sampling=Sampling(temperature=float("nan"))), "not finite"),
        (ask(sampling=Sampling(top_p=float("inf"))), "not finite"),
        (ask(sampling=Sampling(n=0)), "n must be at least 1"),
        (ask(sampling=Sampling(max_tokens=-1)), "max_tokens is negative"),
        (ask(sampling=Sampling(stop=("a", ""))), "empty string"),
        (ask(sampling=Sampling(logit_bias={1: float("inf")})), "logit_bias is not finite"),
        (ask(sampling=Sampling(logit_bias={-1: 1.0})), "no token id"),
        (ask(options={"stop_token_ids": [3, -1]}), r"options.stop_token_ids\[1\] is no token id: -1"),
        (ask(options={"allowed_token_ids": (2**31,)}), "options.allowed_token_ids"),
        (ask(output=Output(regex="a", choice=("b",))), "at most one of regex, choice"),
        (ask(output=Output(json_object=False)), "true or unset"),
        (ask(output=Output(choice=())), "output.choice is empty"),
    ],
)
def test_a_broken_invariant_is_named(request_: Request, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        validate(request_)


@pytest.mark.parametrize(
    ("group", "field", "value"),
    [
        ("scoring", "sampled", True),
        ("scoring", "prompt", "5"),
        ("scoring", "sampled", 2.0),
        ("sampling", "n", True),
        ("sampling", "temperature", "0"),
        ("sampling", "stop", "x"),
        ("sampling", "seed", 1.5),
        ("schedule", "stream", 1),
        ("output", "json_schema", "x"),
        ("reasoning", "effort", "huge"),
        ("replay", "logprobs_mode", "logits"),
        ("input", "text", b"x"),
        ("input", "token_ids", (True, 5)),
        ("input", "token_ids", ("5",)),
        ("input", "messages", (text_message("robot", "x"),)),
    ],
)
def test_a_wrong_type_is_refused(group: str, field: str, value: object) -> None:
    record = msgspec.structs.replace(getattr(GOOD, group), **{field: value})
    if group == "input" and field != "text":
        record = msgspec.structs.replace(record, text=None)
    with pytest.raises(InvalidRequest):
        validate(ask(**{group: record}))


@pytest.mark.parametrize("bad", [True, 1.0, "5", None, [5], -1, 2**31, 2**63])
@pytest.mark.parametrize("name", ["stop_token_ids", "allowed_token_ids", "prompt_logprob_token_ids"])
def test_an_option_that_holds_ids_holds_nothing_else(name: str, bad: object) -> None:
    with pytest.raises(InvalidRequest, match=f"options.{name}"):
        validate(ask(options={name: [5, bad]}))
    with pytest.raises(InvalidRequest, match="list of token ids"):
        validate(ask(options={name: "5"}))
    validate(ask(options={name: [5, 0], "stop_token": bad}))
    assert id_leaves(ask(options={name: [5, 0]})) == {f"options.{name}": [5, 0]}


def test_a_request_that_holds_what_no_wire_can_is_refused() -> None:
    for value in (object(), {1, "a"}, b"x", math.nan, {"deep": [math.inf]}, datetime.date(2020, 1, 1), {1: "a"}):
        with pytest.raises(InvalidRequest):
            validate(ask(options={"x": value}))
        with pytest.raises(InvalidRequest):
            validate(ask(output=Output(json_schema={"x": value})))
    validate(ask(options={"x": (1, 2), "y": {"a": None}, "z": "text", "w": 0.1, "v": 2**60}))


JSON: st.SearchStrategy[Any] = st.none() | st.booleans() | st.integers() | st.floats() | st.text()


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "max_tokens": JSON,
            "temperature": JSON,
            "top_p": JSON,
            "seed": JSON,
            "n": JSON,
            "stop": JSON | st.tuples(st.text()),
            "logit_bias": st.dictionaries(st.integers(), st.floats()),
        },
    )
)
def test_any_sampling_is_valid_or_refused_never_a_crash(values: dict[str, Any]) -> None:
    request = ask(sampling=msgspec.structs.replace(Sampling(), **values))
    with suppress(InvalidRequest):
        validate(request)
        assert request.choices >= 1
        assert request.sampling.temperature is None or request.sampling.temperature >= 0


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1))
def test_ids_in_range_are_valid(ids: list[int]) -> None:
    validate(ask(input=Input(token_ids=tuple(ids))))


def test_the_number_of_choices() -> None:
    assert GOOD.choices == 1
    assert ask(sampling=Sampling(n=3)).choices == 3


def test_empty_stop_is_distinct_from_none() -> None:
    validate(ask(sampling=Sampling(stop=())))
    assert Sampling(stop=()) != Sampling()
