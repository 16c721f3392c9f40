"""Capabilities, the plan before a run, and the matrices: all of them the dialects' own word."""

from __future__ import annotations

import pytest

from dialects.toy import Toy
from logproof.dialects.capabilities import CAPABILITIES, missing, parse_requirement, plan
from logproof.dialects.matrix import baseline, capability_matrix, decided, endpoints, leaf_matrix, merged, probe_leaf
from logproof.dialects.openai_completions import OpenAICompletions
from logproof.dialects.sample_requests import FULL_FACTS
from logproof.dialects.vllm_native import VLLMNative
from logproof.errors import PlanRefused, UsageError
from logproof.ir.facts import Facts
from logproof.ir.leaves import leaf_paths

NATIVE, ECHO = VLLMNative(), OpenAICompletions()
KNOWN = [NATIVE, ECHO]


def test_there_are_sixteen() -> None:
    assert len(CAPABILITIES) == 16
    assert all(c.meaning for c in CAPABILITIES.values())


def test_what_each_dialect_has() -> None:
    table = capability_matrix(KNOWN)
    has = {
        (d.id, kind): {k for k, row in table.items() if row[d.id][kind] is None} for d in KNOWN for kind in endpoints(d)
    }
    assert has["vllm_native", "vllm"] == {
        "input_scoring",
        "sampled_logprobs",
        "top_logprobs",
        "label_scoring",
        "token_input",
        "structured_output",
        "enforced_replay",
        "logprobs_mode",
    }
    common = {"input_scoring", "sampled_logprobs", "top_logprobs", "token_input"}
    assert has["openai_completions", "vllm"] == common
    assert has["openai_completions", "llama.cpp"] == {*common, "fim"}
    assert missing(ECHO, Facts(), "fim") is None
    assert missing(ECHO, FULL_FACTS, "fim") is not None


def test_the_reason_is_the_dialects_own() -> None:
    assert "at most 100" in str(missing(NATIVE, FULL_FACTS, "top_logprobs", 101))
    assert missing(NATIVE, FULL_FACTS, "top_logprobs", 100) is None
    assert missing(ECHO, Facts(), "label_scoring") == "openai_completions has no channel for it"
    assert "plugin" in str(missing(NATIVE, Facts(), "enforced_replay"))
    assert "negative" in str(missing(NATIVE, Facts(), "top_logprobs", -1))


def test_a_plan_names_every_lack_and_who_has_it_all() -> None:
    plan({"input_scoring": 1, "top_logprobs": 5}, ECHO, FULL_FACTS, KNOWN)
    with pytest.raises(PlanRefused) as caught:
        plan({"label_scoring": 1, "structured_output": 1, "top_logprobs": 5}, ECHO, FULL_FACTS, KNOWN)
    assert "label_scoring (" in str(caught.value)
    assert "structured_output (" in str(caught.value)
    assert "top_logprobs" not in str(caught.value)
    assert caught.value.hint == "this endpoint gives it through: vllm_native"
    with pytest.raises(PlanRefused) as caught:
        plan({"top_logprobs": 101}, NATIVE, FULL_FACTS, KNOWN)
    assert "top_logprobs=101" in str(caught.value)
    assert caught.value.hint == "no known dialect gives all of it here"


@pytest.mark.parametrize(
    ("text", "found"), [("input_scoring", ("input_scoring", 1)), ("top_logprobs=100", ("top_logprobs", 100))]
)
def test_requirements_are_read(text: str, found: tuple[str, int]) -> None:
    assert parse_requirement(text) == found


@pytest.mark.parametrize(
    "text", ["nope", "", "input_scoring=3", "top_logprobs=x", "top_logprobs=-1", "top_logprobs=1.5"]
)
def test_a_malformed_requirement_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_requirement(text)


def test_the_leaf_matrix_shows_every_sample() -> None:
    table = leaf_matrix([NATIVE])
    assert set(table) == set(leaf_paths())
    native = {leaf: row["vllm_native"]["vllm"] for leaf, row in table.items()}
    assert [c.kind for c in native["sampling.max_tokens"]] == ["sent", "sent", "refused"]
    assert native["schedule.stream"][0].kind == "no-op"
    assert native["sampling.temperature"][0].detail == "/temperature"
    (image,) = native["input.messages.image"]
    assert (image.kind, image.value) == ("refused", "messages")


def test_a_sample_that_is_no_request_is_told_as_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logproof.dialects.matrix.SAMPLES", {"sampling.n": (0,)})
    (cell,) = probe_leaf(NATIVE, Facts(), "sampling.n")
    assert (cell.kind, cell.detail) == ("invalid", "sampling.n must be at least 1")


def test_words_of_several_endpoints_are_merged() -> None:
    assert merged({"a": "sent", "b": "sent"}) == "sent"
    assert merged({"a": "sent", "b": "-", "c": "sent"}) == "sent: a, c; -: b"
    assert decided(probe_leaf(NATIVE, FULL_FACTS, "model")) == "sent"
    assert decided(probe_leaf(NATIVE, FULL_FACTS, "input.suffix")) == "-"
    assert decided(probe_leaf(NATIVE, FULL_FACTS, "sampling.max_tokens")) == "by value"


def test_a_dialect_that_no_known_endpoint_speaks_is_shown_at_its_best() -> None:
    assert endpoints(Toy()) == {"vllm": FULL_FACTS}
    assert [c.value for c in probe_leaf(Toy(), FULL_FACTS, "input.messages.opaque")] == ["its own blob"]


class Mute(Toy):
    """Refuses whatever it is asked."""

    def lower(self, request: object, facts: object, ledger: object) -> None:
        """Decide nothing."""


def test_a_dialect_without_a_plain_request_has_no_baseline() -> None:
    with pytest.raises(ValueError, match="accepts no plain request"):
        baseline(Mute(), Facts())
