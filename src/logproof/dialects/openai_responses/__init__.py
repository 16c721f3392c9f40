"""openai_responses: POST /v1/responses, as OpenAI documents it and vLLM and SGLang serve it.

One choice, made of ordered items that go back unchanged. Nothing is stored unless a session is asked for.
Logprobs are keyed by text; vLLM names the sampled ids beside them. Where vLLM or SGLang is scored the reply is
asked unstreamed, because their streams lose the logprobs of tokens that show no text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from logproof.dialects.dialect import Dialect
from logproof.dialects.ledger import Ledger
from logproof.dialects.openai_responses.reply import lift
from logproof.dialects.openai_responses.request import ROUTE, lower
from logproof.dialects.openai_responses.stream import assemble
from logproof.http.exchange import SseEvent
from logproof.ir.facts import Facts
from logproof.ir.request import Request
from logproof.ir.response import Response


class OpenAIResponses(Dialect):
    """The Responses wire."""

    id: ClassVar[str] = "openai_responses"
    channels: ClassVar[dict[str, str]] = {
        "prompt_ids": "vLLM, where the endpoint lists enable_response_messages",
        "sampled_logprobs": "every sampled token by text; ids at vLLM, where it lists enable_response_messages",
        "sampled_top": (
            "the k best for certain, asked one wider, the sampled token among or beside them; keyed by text and "
            "refused where texts collapse"
        ),
        "reasoning": "text, or its summary where the text is sealed; the items go back as opaque parts",
        "tool_calls": "function calls, arguments as the model wrote them; a forced call that did not come is refused",
        "hosted_uses": "items of the tools that the provider ran, as received",
        "citations": "as annotated, spans counted in the whole text",
        "session_id": "the response's id, where it was stored",
        "parsed": "validated here against schema, regex or choices",
    }

    def path(self, request: Request) -> str:
        return ROUTE

    def lower(self, request: Request, facts: Facts, ledger: Ledger) -> None:
        lower(request, facts, ledger)

    def lift(self, request: Request, body: bytes) -> Response:
        return lift(request, body)

    def assemble(self, events: Sequence[SseEvent]) -> bytes:
        return assemble(events)
