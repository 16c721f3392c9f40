"""What a call has to say beside its result."""

from __future__ import annotations

from logproof.cli.printing import note
from logproof.dialects.call import Call


def print_notes(call: Call) -> None:
    """Print why leaves were not sent as they were set, and where the reply is unusual, on standard error."""
    for decision in call.decisions:
        if decision.reason is not None:
            note(f"{decision.leaf}: {decision.kind}, {decision.reason}")
    for line in (*call.notes, *call.response.notes):
        note(f"note: {line}")
