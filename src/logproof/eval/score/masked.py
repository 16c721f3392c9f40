"""Masked logprobs enter no sum: under a grammar they are renormalised over what it allows. Pure."""

from __future__ import annotations

from logproof.errors import BadReply
from logproof.ir.response import Meaning


def refuse_masked(meaning: Meaning) -> None:
    """Raise BadReply for logprobs of a distribution that a grammar has masked."""
    if meaning == "constrained":
        raise BadReply("these logprobs are renormalised over a grammar, not the model's own")
