from __future__ import annotations

import pytest

from logproof.ir.request import Output
from logproof.verify.artifact.grammar import constraint, digest

SCHEMA = {"type": "object", "properties": {"猫": {"type": "integer"}}}
TOOL = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    ("body", "output"),
    [
        ({"structured_outputs": {"json": SCHEMA}}, Output(json_schema=SCHEMA)),
        ({"structured_outputs": {"json": '{"type":"object"}', "regex": None}}, Output(json_schema={"type": "object"})),
        ({"structured_outputs": {"json_object": True}}, Output(json_object=True)),
        ({"structured_outputs": {"regex": "[a-z]+"}}, Output(regex="[a-z]+")),
        ({"structured_outputs": {"choice": ["a", "猫"]}}, Output(choice=("a", "猫"))),
        ({"structured_outputs": {"grammar": 'root ::= "a"'}}, Output(grammar='root ::= "a"')),
        ({"response_format": {"type": "json_object"}}, Output(json_object=True)),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}},
            Output(json_schema=SCHEMA),
        ),
    ],
)
def test_the_recorded_grammar_comes_back_as_leaves(body: dict[str, object], output: Output) -> None:
    assert constraint(body, digest(body)) == output


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (None, "holds no grammar"),
        ({"structured_outputs": {"structural_tag": "x"}}, "structural_tag"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "cannot be replayed"),
        ({"structured_outputs": {"json": "{"}}, "cannot be read"),
        ({"structured_outputs": {"json": 5}}, "cannot be read"),
        ({"structured_outputs": [1]}, "cannot be replayed"),
        ({"response_format": {"type": "structural_tag"}}, "structural_tag"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}}, "is empty"),
        ({"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}}, "2 constraints"),
        ({"tools": [TOOL], "tool_choice": "required"}, "tool calls"),
        ({"sampling_params": {"regex": "a", "top_k": 3}}, "in sampling_params.regex cannot be replayed"),
        ({"text": {"format": {"type": "json_schema", "schema": SCHEMA}}}, "in text.format cannot be replayed"),
        ({}, "0 constraints"),
    ],
)
def test_what_cannot_be_replayed_says_why(body: dict[str, object] | None, words: str) -> None:
    found = constraint(body, None if body is None else digest(body))
    assert isinstance(found, str)
    assert words in found


def test_another_grammar_than_the_claimed_one_is_not_replayed() -> None:
    found = constraint({"structured_outputs": {"regex": "a"}}, digest({"structured_outputs": {"regex": "b"}}))
    assert found == "the recorded request's grammar is not the one that the artifact claims"


def test_the_digest_reads_meaning_not_spelling() -> None:
    assert digest({}) == digest({"response_format": {"type": "text"}}) == digest({"structured_outputs": None}) == ""
    assert digest({"text": {"format": {"type": "text"}}, "sampling_params": {"regex": None}}) == ""
    one, other = {"type": "object", "title": "猫"}, {"title": "猫", "type": "object"}
    assert digest({"structured_outputs": {"json": one}}) == digest({"structured_outputs": {"json": other}})
