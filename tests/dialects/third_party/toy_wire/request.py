"""Lowering for the toy: every leaf that it does not send is refused."""

from __future__ import annotations

from logproof.dialects.ledger import Ledger
from logproof.ir.facts import Facts
from logproof.ir.request import Request

TAKEN = ("input.text", "model", "sampling.max_tokens", "schedule.stream")


def lower(request: Request, facts: Facts, ledger: Ledger) -> None:
    """Decide every active leaf and fill the body."""
    ledger.send("input.text", "/text")
    ledger.noop("model", "the toy serves one model")
    ledger.send("sampling.max_tokens", "/limit/tokens")
    ledger.noop("schedule.stream", "the toy does not stream")
    ledger.options(["voice"])
    for leaf in ledger.active:
        if leaf not in TAKEN and not leaf.startswith("options."):
            ledger.refuse(leaf, "the toy cannot")
