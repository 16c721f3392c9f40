"""anthropic_messages: POST /v1/messages, Anthropic's wire, which vLLM and SGLang also serve.

It gives no logprobs and takes no ids. The API version travels in a header: the caller's, or the older one, which
every server of this wire reads; since 2026-10-21 it takes no sampling fields. vLLM and SGLang answer 200 to fields
that they do not read, so what they are known to ignore is refused for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from logproof.dialects.anthropic_messages.reply import lift
from logproof.dialects.anthropic_messages.request import ROUTE, api_version, lower
from logproof.dialects.anthropic_messages.stream import assemble
from logproof.dialects.dialect import Dialect
from logproof.dialects.ledger import Ledger
from logproof.http.exchange import SseEvent
from logproof.ir.facts import Facts
from logproof.ir.request import Request
from logproof.ir.response import Response


class AnthropicMessages(Dialect):
    """Anthropic's Messages wire."""

    id: ClassVar[str] = "anthropic_messages"
    channels: ClassVar[dict[str, str]] = {
        "text": "text blocks joined; with a prefill, the continuation alone",
        "reasoning": "thinking blocks, often a summary; signatures and redacted blocks kept for the next turn",
        "tool_calls": "arguments as the JSON text of the reply",
        "hosted_uses": "calls and results of provider tools, as received",
        "citations": "by text block, whose span they carry",
        "parsed": "validated here against the schema",
    }
    auth = "x-api-key"

    def path(self, request: Request) -> str:
        return ROUTE

    def request_headers(self, facts: Facts) -> tuple[tuple[str, str], ...]:
        return (("anthropic-version", api_version(facts)),)

    def lower(self, request: Request, facts: Facts, ledger: Ledger) -> None:
        lower(request, facts, ledger)

    def lift(self, request: Request, body: bytes) -> Response:
        return lift(request, body)

    def assemble(self, events: Sequence[SseEvent]) -> bytes:
        return assemble(events)
