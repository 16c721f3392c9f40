"""Requests over openai_completions, as the tests of this dialect make them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from dialects import wires
from logproof.dialects.lower import lower
from logproof.dialects.openai_completions import OpenAICompletions
from logproof.errors import RequestRefused
from logproof.ir.facts import Facts
from logproof.ir.request import Input, Request, Sampling, Scoring

DIALECT = OpenAICompletions()


def ask(**groups: object) -> Request:
    return msgspec.structs.replace(Request("m", Input(text="Hi"), sampling=Sampling(max_tokens=4)), **groups)


def body(request: Request, facts: Facts | None = None) -> Any:
    return json.loads(lower(request, DIALECT, facts or Facts()).wire.body)


def refusals(request: Request, facts: Facts | None = None) -> dict[str, str]:
    with pytest.raises(RequestRefused) as caught:
        lower(request, DIALECT, facts or Facts())
    return dict(caught.value.refusals)


def sampled(top: Any, width: int, tokens: Any = ("true",), values: Any = (-0.2,), **usage: int) -> Any:
    logprobs = {"tokens": tokens, "token_logprobs": values, "top_logprobs": top}
    counts = {"completion_tokens": len(tokens), **usage}
    reply = {"choices": [{"index": 0, "text": "x", "finish_reason": "stop", "logprobs": logprobs}], "usage": counts}
    return wires.read(DIALECT, ask(scoring=Scoring(sampled=width)), reply)
