"""google_genai: POST /v1beta/models/{model}:generateContent, the Gemini wire.

Model and streaming stand in the path. Newer models take less: what a model is documented to ignore is refused by
its name, and what it answers with an error is left to it. Gateways of this wire drop fields without a word; a reply
without `modelVersion` is one of theirs, and says so in its notes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar
from urllib.parse import quote

from logproof.dialects.dialect import Dialect
from logproof.dialects.google_genai.reply import lift
from logproof.dialects.google_genai.request import lower
from logproof.dialects.google_genai.stream import assemble
from logproof.dialects.ledger import Ledger
from logproof.http.exchange import SseEvent
from logproof.ir.facts import Facts
from logproof.ir.request import Request
from logproof.ir.response import Response


class GoogleGenAI(Dialect):
    """Gemini's generateContent wire."""

    id: ClassVar[str] = "google_genai"
    channels: ClassVar[dict[str, str]] = {
        "text": "text parts of each candidate, thoughts left out",
        "reasoning": "thought parts; signatures kept on their parts for the next turn",
        "tool_calls": "arguments as the JSON text of the reply",
        "hosted_uses": "code, its results, and calls of provider tools, as received",
        "citations": "citation sources and grounding supports, as character spans",
        "grounding": "grounding metadata, as received",
        "sampled_logprobs": "every sampled token, by id where the wire gives ids; the sum checked where reported",
        "sampled_top": "k best at each position, k + 1 with the sampled token beside them",
        "parsed": "validated here against the schema",
    }
    auth = "x-goog-api-key"

    def path(self, request: Request) -> str:
        method = "streamGenerateContent?alt=sse" if request.schedule.stream else "generateContent"
        return f"/v1beta/models/{quote(request.model.removeprefix('models/'), safe='')}:{method}"

    def streams(self, ledger: Ledger) -> bool:
        return ledger.active.get("schedule.stream") is True

    def lower(self, request: Request, facts: Facts, ledger: Ledger) -> None:
        lower(request, facts, ledger)

    def lift(self, request: Request, body: bytes) -> Response:
        return lift(request, body)

    def assemble(self, events: Sequence[SseEvent]) -> bytes:
        return assemble(events)
