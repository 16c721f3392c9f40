"""Structured output: broken constraints refused before sending, texts parsed and validated after."""

from __future__ import annotations

from typing import Any

import pytest

from logproof.dialects.common import structured
from logproof.errors import OutputContractError
from logproof.ir.request import Output
from logproof.ir.response import Finish

DONE = Finish("stop", "stop")
CUT = Finish("length", "length")
SCHEMA: dict[str, object] = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("output", "text", "value"),
    [
        (Output(), "x", None),
        (Output(json_schema=SCHEMA), '{"a": 1}', {"a": 1}),
        (Output(json_schema={}), "null", None),
        (Output(json_object=True), '{"b": [1.5]}', {"b": [1.5]}),
        (Output(regex="[a-z]+"), "abc", "abc"),
        (Output(choice=("yes", "no")), "no", "no"),
        (Output(grammar="g"), "alpha", "alpha"),
    ],
)
def test_a_text_within_its_contract_is_parsed(output: Output, text: str, value: Any) -> None:
    assert structured.parse(output, text, DONE, "/t") == value


@pytest.mark.parametrize(
    ("output", "text", "finish", "message"),
    [
        (Output(json_schema=SCHEMA), '{"a": 1', CUT, r"not valid JSON \(truncated at max_tokens\)"),
        (Output(json_schema=SCHEMA), '{"a": "x"}', DONE, r"off the schema at \$.a"),
        (Output(json_schema=SCHEMA), "{}", DONE, "required"),
        (Output(json_schema=SCHEMA), "", DONE, "not valid JSON"),
        (Output(json_schema=SCHEMA), '{"a": 1} tail', DONE, "not valid JSON"),
        (Output(json_schema=SCHEMA), "[" * 100_000, CUT, "not valid JSON"),
        (Output(json_schema=SCHEMA), "{" + "\n" * 4000, CUT, "with long runs of white space"),
        (Output(json_schema={}), "NaN", DONE, "NaN is no JSON value"),
        (Output(json_object=True), "[1]", DONE, "is no object"),
        (Output(json_object=True), '{"a', Finish("stop", "stop", "x"), r"ended by stop string 'x'"),
        (Output(regex="[a-z]+"), "abc1", DONE, "does not match the regex"),
        (Output(regex="[a-z]{4}"), "abc", CUT, "truncated"),
        (Output(choice=("yes", "no")), "ye", CUT, "none of the choices"),
        (Output(grammar="g"), "alp", CUT, "the grammar's text is unfinished"),
    ],
)
def test_a_text_off_its_contract_is_an_error(output: Output, text: str, finish: Finish, message: str) -> None:
    with pytest.raises(OutputContractError, match=message) as caught:
        structured.parse(output, text, finish, "/choices/0/text")
    assert caught.value.path == "/choices/0/text"
    assert len(str(caught.value)) < 500


def test_a_cut_text_says_what_to_raise() -> None:
    with pytest.raises(OutputContractError) as caught:
        structured.parse(Output(json_object=True), "{", CUT, "/t")
    assert caught.value.hint == "raise sampling.max_tokens"


def test_a_grammar_changes_the_meaning() -> None:
    assert structured.sampled_meaning(Output(), "raw") == "raw"
    assert structured.sampled_meaning(Output(name="x"), "raw") == "raw"
    for output in (Output(json_schema={}), Output(regex="a"), Output(choice=("a",)), Output(grammar="g")):
        assert structured.sampled_meaning(output, "raw") == "constrained"


def test_a_schema_is_checked_against_its_own_draft() -> None:
    assert structured.schema_fault({"type": "object"}) is None
    assert "nope" in str(structured.schema_fault({"type": "nope"}))
    draft = {"$schema": "http://json-schema.org/draft-04/schema#", "exclusiveMinimum": 1}
    assert structured.schema_fault(draft) is not None
