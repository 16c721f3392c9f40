"""openai_chat: POST /v1/chat/completions, as OpenAI documents it and vLLM, SGLang and llama.cpp serve it.

What goes beyond OpenAI's fields depends on the endpoint: vLLM's and SGLang's own fields where the engine is
known, ids of tokens where the endpoint's OpenAPI document lists the fields for them. A top-k of k is asked as
k + 1 and narrowed (dialects/common/openai_scores.py), because vLLM cuts its list. Prompt scores are those of the
templated prompt, whose ids come with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from logproof.dialects.dialect import Dialect
from logproof.dialects.ledger import Ledger
from logproof.dialects.openai_chat.reply import lift
from logproof.dialects.openai_chat.request import ROUTE, lower
from logproof.dialects.openai_chat.stream import assemble
from logproof.http.exchange import SseEvent
from logproof.ir.facts import Facts
from logproof.ir.request import Request
from logproof.ir.response import Response


class OpenAIChat(Dialect):
    """The chat completions wire."""

    id: ClassVar[str] = "openai_chat"
    channels: ClassVar[dict[str, str]] = {
        "prompt_logprobs": "vLLM: every position of the templated prompt by id, with rank; the first is unscored",
        "prompt_top": "vLLM: k best at each position by id, k + 1 with the scored token beside them",
        "prompt_ids": "where the endpoint lists return_token_ids",
        "sampled_logprobs": "every sampled token; by id where the endpoint lists return_tokens_as_token_ids",
        "sampled_top": (
            "the k best for certain, asked one wider, the sampled token among or beside them; by id where the "
            "endpoint lists return_tokens_as_token_ids, else by text and refused where texts collapse"
        ),
        "label_scores": "exact, where the endpoint lists logprob_token_ids and return_tokens_as_token_ids",
        "reasoning": "text of vLLM and SGLang; OpenAI's wire has none",
        "tool_calls": "function calls, arguments as the model wrote them; a forced call that did not come is refused",
        "citations": "as annotated",
        "parsed": "validated here against schema, regex or choices",
        "replay": "enforced ids, where the endpoint has the logproof plugin and lists return_token_ids",
    }

    def path(self, request: Request) -> str:
        return ROUTE

    def lower(self, request: Request, facts: Facts, ledger: Ledger) -> None:
        lower(request, facts, ledger)

    def lift(self, request: Request, body: bytes) -> Response:
        return lift(request, body)

    def assemble(self, events: Sequence[SseEvent]) -> bytes:
        return assemble(events)
