"""vllm_native: POST /v1/completions of vLLM, with vLLM's own fields as first-class wire.

Prompt scoring travels in its own channel (`prompt_logprobs` beside `return_token_ids`), keyed by id; sampled
tokens are asked as `token_id:N`, so no two tokens of equal text collapse. Facts are those measured on
vLLM 0.32: raw logprobs, but masked and renormalised ones under a grammar; prompt logprobs always raw.
"""

from __future__ import annotations

from typing import ClassVar

from logproof.dialects.dialect import Dialect
from logproof.dialects.ledger import Ledger
from logproof.dialects.vllm_native.reply import lift
from logproof.dialects.vllm_native.request import ROUTE, lower
from logproof.ir.facts import Facts
from logproof.ir.request import Request
from logproof.ir.response import Response


class VLLMNative(Dialect):
    """vLLM's /v1/completions with its native fields."""

    id: ClassVar[str] = "vllm_native"
    steady: ClassVar[bool] = True
    channels: ClassVar[dict[str, str]] = {
        "prompt_logprobs": "every prompt position by id, with rank and text; the first is unscored",
        "prompt_top": "k best at each position by id, k + 1 with the scored token beside them",
        "prompt_ids": "always",
        "sampled_logprobs": "every sampled token by id",
        "sampled_top": "k best by id, k + 1 with the sampled token beside them",
        "label_scores": "exact, where the endpoint lists logprob_token_ids",
        "parsed": "validated here against schema, regex or choices",
        "replay": "enforced ids, where the endpoint has the logproof plugin",
    }

    def path(self, request: Request) -> str:
        return ROUTE

    def lower(self, request: Request, facts: Facts, ledger: Ledger) -> None:
        lower(request, facts, ledger)

    def lift(self, request: Request, body: bytes) -> Response:
        return lift(request, body)
