"""Logits processors of SGLang that bend sampled logprobs: pinned by a request, and heeded by who reads a reply."""

from __future__ import annotations

from logproof.dialects.ledger import Ledger
from logproof.ir.request import Request

NEUTRAL = {"frequency_penalty": 0.0, "presence_penalty": 0.0, "repetition_penalty": 1.0, "min_new_tokens": 0}
"""Values at which nothing but the temperature changes a sampled logprob."""


def pin_processors(request: Request, ledger: Ledger, place: str) -> None:
    """Send each processor that the request leaves open at its neutral value. place: pointer of the sampling group."""
    for name, value in NEUTRAL.items():
        if getattr(request.sampling, name, None) is None and name not in request.options:
            reason = "a server may prefer another value, and a sampled logprob depends on it"
            ledger.constant(f"{place}/{name}", value, reason)
