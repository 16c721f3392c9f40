"""What bodies of every dialect state."""

from __future__ import annotations

import pytest

from logproof.errors import ArtifactError
from logproof.verify.artifact.artifact import RecordedSampling, Seed, Sent
from logproof.verify.artifact.request_body import (
    CHAT,
    COMPLETIONS,
    FORMS,
    StatedRequest,
    protocol_values,
    stated_request,
    with_protocol,
)


def chat(body: object) -> StatedRequest:
    return stated_request(Sent(dialect="openai_chat", path=CHAT, body=body))


def sampling(body: dict[str, object], engine: str | None = "vllm") -> RecordedSampling:
    """As a proxy records it of a chat."""
    return with_protocol(chat(body).sampling, protocol_values(engine, CHAT))


def test_what_a_request_leaves_out_is_unresolved_unless_the_protocol_fixes_it() -> None:
    on_vllm = sampling({})
    assert {"temperature", "top_p", "top_k", "min_p", "max_tokens", "repetition_penalty"} < set(on_vllm.unresolved())
    assert (on_vllm.logit_bias, on_vllm.stop, on_vllm.ignore_eos, on_vllm.structured_output) == ({}, (), False, "")
    assert set(sampling({}, None).unresolved()) == set(sampling({}, None).__struct_fields__) - {
        "seed",
        "sources",
        "structured_output",
    }


def test_what_a_request_states_is_resolved() -> None:
    body = {
        "temperature": 1,
        "top_p": 0.9,
        "top_k": -1,
        "min_p": 0,
        "stop": "x",
        "seed": 7,
        "max_tokens": 4,
        "max_completion_tokens": 5,
        "logit_bias": {"3": 2},
        "allowed_token_ids": [1, 2],
        "stop_token_ids": [4],
        "response_format": {"type": "text"},
    }
    found = sampling(body)
    assert (found.temperature, found.top_p, found.top_k, found.min_p) == (1.0, 0.9, 0, 0.0)
    assert (found.stop, found.max_tokens, found.allowed_ids, found.stop_token_ids) == (("x",), 5, (1, 2), (4,))
    assert found.logit_bias == {"3": 2.0}
    assert found.seed == Seed(value=7, origin="requester")
    assert found.structured_output == ""
    assert sampling({"seed": -1}).seed is None


TOOL = {"type": "function", "function": {"name": "f"}}
STRICT = {"type": "function", "function": {"name": "f", "strict": True}}


@pytest.mark.parametrize(
    ("body", "constrained"),
    [
        ({"response_format": {"type": "json_object"}}, True),
        ({"structured_outputs": {"choice": ["a"]}}, True),
        ({"tools": [TOOL], "tool_choice": "required"}, True),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}}, True),
        ({"tools": [STRICT]}, True),
        ({"tools": [STRICT], "tool_choice": "none"}, False),
        ({"tools": [TOOL], "tool_choice": "auto"}, False),
        ({"tool_choice": "required"}, False),
    ],
)
def test_a_grammar_is_known_by_its_digest(body: dict[str, object], constrained: bool) -> None:
    assert bool(sampling(body).structured_output) is constrained


def test_sampling_that_no_engine_takes_is_refused() -> None:
    with pytest.raises(ArtifactError, match="sampling"):
        sampling({"temperature": "hot"})


PATHS = {
    "openai_chat": CHAT,
    "openai_responses": "/v1/responses",
    "anthropic_messages": "/v1/messages",
    "google_genai": "/v1beta/models/gemini:generateContent",
    "sglang_native": "/generate",
}


@pytest.mark.parametrize("dialect", FORMS)
def test_every_form_reads_what_stands_at_its_pointers(dialect: str) -> None:
    values: dict[str, object] = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 4, "stop": ["x"], "seed": 3}
    body: dict[str, object] = {}
    for leaf in values.keys() & FORMS[dialect].pointers.keys():
        *outer, name = FORMS[dialect].pointers[leaf][0].split("/")[1:]
        inner = body
        for part in outer:
            inner = inner.setdefault(part, {})  # type: ignore[assignment]
        inner[name] = values[leaf]
    stated = stated_request(Sent(dialect=dialect, path=PATHS.get(dialect, COMPLETIONS), body=body))
    assert (stated.sampling.temperature, stated.sampling.max_tokens, stated.sampling.stop) == (0.5, 4, ("x",))
    assert stated.sampling.seed == (None if dialect == "anthropic_messages" else Seed(value=3, origin="requester"))
    assert set(stated.sampling.sources) == values.keys() - {"seed"}
    assert (stated.model, stated.n) == (None, 1)


def test_model_and_choices() -> None:
    stated = chat({"model": "m", "n": 3, "messages": []})
    assert (stated.model, stated.names_model, stated.n) == ("m", True, 3)
    for n in (0, True, "2", 1.5):
        with pytest.raises(ArtifactError, match="number of choices"):
            chat({"n": n})


@pytest.mark.parametrize(
    ("dialect", "path", "body", "words"),
    [
        ("toy", CHAT, {}, "toy are not read"),
        ("openai_chat", COMPLETIONS, {}, "sends nothing to /v1/completions"),
        ("openai_chat", CHAT, None, "no JSON object"),
        ("openai_chat", CHAT, [], "no JSON object"),
        ("openai_chat", CHAT, {"stop": 5}, "cannot be read"),
    ],
)
def test_a_request_that_cannot_be_read_says_why(dialect: str, path: str, body: object, words: str) -> None:
    with pytest.raises(ArtifactError, match=words):
        stated_request(Sent(dialect=dialect, path=path, body=body))


def test_vllm_limits_a_completion_that_names_no_limit() -> None:
    assert protocol_values("vllm", COMPLETIONS)["max_tokens"] == 16
    assert "max_tokens" not in protocol_values("vllm", CHAT)
    assert protocol_values("openai", COMPLETIONS) == {}
