"""The completions reply shared by two dialects: finish reasons, ids in texts, the first prompt text."""

from __future__ import annotations

import pytest

from dialects import wires
from logproof.dialects.openai_completions import OpenAICompletions
from logproof.errors import BadReply
from logproof.ir.facts import Facts
from logproof.ir.request import Input, Request

DIALECT = OpenAICompletions()


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_a_choice_that_the_engine_ended_is_refused(reason: str) -> None:
    with pytest.raises(BadReply, match=f"ended this choice with '{reason}'"):
        wires.read(DIALECT, Request("m", Input(text="x")), {"choices": [{"text": "a", "finish_reason": reason}]})


@pytest.mark.parametrize(
    ("raw", "reason"),
    [("stop", "stop"), ("length", "length"), ("content_filter", "content_filter"), ("weird", "other"), (None, "other")],
)
def test_finish_reasons_are_normalised_and_kept(raw: str | None, reason: str) -> None:
    lifted = wires.read(DIALECT, Request("m", Input(text="x")), {"choices": [{"text": "a", "finish_reason": raw}]})
    assert (lifted.choices[0].finish.reason, lifted.choices[0].finish.raw) == (reason, raw)


def test_ids_of_logprobs_and_of_the_choice_must_agree() -> None:
    logprobs = {"tokens": ["token_id:5"], "token_logprobs": [-1.0]}
    answer = {"choices": [{"text": "a", "logprobs": logprobs, "token_ids": [6]}]}
    request = wires.request_of({"model": "m", "prompt": "x", "logprobs": 0})
    with pytest.raises(BadReply, match="name different tokens"):
        wires.read(DIALECT, request, answer)
    logprobs["tokens"], answer["choices"][0]["token_ids"] = ["a"], [6, 7]  # type: ignore[index]
    with pytest.raises(BadReply, match="1 entries for 2 token ids"):
        wires.read(DIALECT, request, answer)


def test_a_text_key_among_ids_is_refused() -> None:
    logprobs = {"tokens": ["token_id:5"], "token_logprobs": [-1.0], "top_logprobs": [{"token_id:5": -1.0, " a": -2.0}]}
    request = wires.request_of({"model": "m", "prompt": "x", "logprobs": 2})
    with pytest.raises(BadReply, match="keyed by text among ids"):
        wires.read(DIALECT, request, {"choices": [{"text": "a", "logprobs": logprobs}]})


def test_cached_and_reasoning_counts_are_lifted() -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 2}}
    lifted = wires.read(DIALECT, Request("m", Input(text="x")), {"choices": [{"text": "a"}], "usage": details})
    assert (lifted.usage.cached, lifted.usage.reasoning, lifted.usage.prompt) == (4, 2, None)
    assert (
        wires.read(DIALECT, Request("m", Input(text="x")), {"choices": [{"text": "a"}]}, Facts()).usage.cached is None
    )
