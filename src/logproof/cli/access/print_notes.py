"""What a call has to say beside its result."""

from __future__ import annotations

from logproof.cli.printing import remark
from logproof.dialects.call import Call


def print_notes(call: Call) -> None:
    """Print why leaves were not sent as they were set, and where the reply is unusual, on standard error."""
    for decision in call.decisions:
        if decision.reason is not None:
            remark(f"{decision.leaf}: {decision.kind}, {decision.reason}")
    for note in (*call.notes, *call.response.notes):
        remark(f"note: {note}")
