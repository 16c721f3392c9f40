"""openai_completions: POST /v1/completions in the fields that OpenAI documented and most engines serve.

A prompt is scored through `echo`: tokens of prompt and completion come in one list, split only at the
boundary that `usage.prompt_tokens` states, and refused when that count is absent or contradicts the list.
Top maps are keyed by text, so two tokens of one text leave a map short of its width; such a map is refused.
An endpoint that lists `return_token_ids` is asked for ids as an independent count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from logproof.dialects.dialect import Dialect
from logproof.dialects.ledger import Ledger
from logproof.dialects.openai_completions.reply import lift
from logproof.dialects.openai_completions.request import ROUTE, lower
from logproof.dialects.openai_completions.stream import assemble
from logproof.http.exchange import SseEvent
from logproof.ir.facts import Facts
from logproof.ir.request import Request
from logproof.ir.response import Response


class OpenAICompletions(Dialect):
    """The classic completions wire."""

    id: ClassVar[str] = "openai_completions"
    steady: ClassVar[bool] = True
    channels: ClassVar[dict[str, str]] = {
        "prompt_logprobs": "every prompt position by echo, split at usage.prompt_tokens; the first is unscored",
        "prompt_top": "keyed by text: refused where texts collapse",
        "prompt_ids": "where the endpoint lists return_token_ids",
        "sampled_logprobs": "every sampled token by text; ids where the endpoint lists return_token_ids",
        "sampled_top": "keyed by text: refused where texts collapse; a full map may still hide a twin",
    }

    def path(self, request: Request) -> str:
        return ROUTE

    def lower(self, request: Request, facts: Facts, ledger: Ledger) -> None:
        lower(request, facts, ledger)

    def lift(self, request: Request, body: bytes) -> Response:
        return lift(request, body)

    def assemble(self, events: Sequence[SseEvent]) -> bytes:
        return assemble(events)
