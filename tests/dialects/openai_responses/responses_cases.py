"""Endpoints and helpers of the openai_responses tests."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from logproof.client.client import Lowered
from logproof.dialects.lower import lower
from logproof.dialects.openai_responses import OpenAIResponses
from logproof.dialects.openai_responses.request import ROUTE
from logproof.errors import RequestRefused
from logproof.ir.facts import Facts
from logproof.ir.message import Message, text_message
from logproof.ir.request import Input, Request

DIALECT = OpenAIResponses()
HI = text_message("user", "Hi")
VLLM = Facts(
    engine="vllm", max_logprobs=20, fields={ROUTE: ("min_p", "enable_response_messages", "truncation", "background")}
)
SGLANG = Facts(engine="sglang", fields={ROUTE: ("min_p",)})
OPENAI = Facts(engine="openai")
ANY = Facts()


def ask(*messages: Message, **groups: msgspec.Struct | dict[str, object]) -> Request:
    """A chat request; `groups` are records such as sampling=Sampling(...)."""
    return msgspec.structs.replace(Request("m", Input(messages=messages or (HI,))), **groups)


def lowered(request: Request, facts: Facts, *drop: str) -> Lowered:
    return lower(request, DIALECT, facts, drop)


def sent(request: Request, facts: Facts, *drop: str) -> dict[str, Any]:
    """The body of a request that passes."""
    body: dict[str, Any] = json.loads(lowered(request, facts, *drop).wire.body)
    return body


def extra(request: Request, facts: Facts) -> dict[str, Any]:
    """The body less what every request of this endpoint holds."""
    base = sent(ask(), facts)
    return {k: v for k, v in sent(request, facts).items() if k not in base or base[k] != v}


def refusal(request: Request, facts: Facts) -> dict[str, str]:
    """{leaf: reason} of a request that is refused before I/O."""
    with pytest.raises(RequestRefused) as caught:
        lowered(request, facts)
    return dict(caught.value.refusals)
