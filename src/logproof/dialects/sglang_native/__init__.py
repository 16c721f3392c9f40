"""sglang_native: POST /generate of SGLang, its own scoring wire; text or ids in, ids with logprobs out.

The server ignores unknown fields at the top of the body and rejects them inside `sampling_params`; some bodies
end the whole process. So only fields of its contract are sent, and every id and range is checked here. Facts
are those measured on SGLang 0.5.23.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from logproof.dialects.dialect import Dialect
from logproof.dialects.ledger import Ledger
from logproof.dialects.sglang_native.reply import lift
from logproof.dialects.sglang_native.request import ROUTE, lower
from logproof.dialects.sglang_native.stream import assemble
from logproof.http.exchange import SseEvent
from logproof.ir.facts import Facts
from logproof.ir.request import Request
from logproof.ir.response import Response


class SGLangNative(Dialect):
    """SGLang's /generate."""

    id: ClassVar[str] = "sglang_native"
    channels: ClassVar[dict[str, str]] = {
        "prompt_logprobs": "every prompt position by id, raw; the first is unscored; refused when the cache cut it",
        "prompt_top": "k best at each position by id, k + 1 with the scored token beside them",
        "prompt_ids": "with scored prompts, and wherever the server reads return_prompt_token_ids",
        "sampled_logprobs": "every sampled token by id; after temperature, penalties and bias (see the meaning)",
        "sampled_top": "k best by id, k + 1 with the sampled token beside them",
        "label_scores": "exact, at every sampled position",
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
