"""From a lifted choice to the assistant turn that goes back with the next request.

A dialect whose wire cares about the order of a turn's items, or about blobs and signatures on them, lifts
`Choice.turn`: the parts as they stood. Elsewhere the turn follows from the choice's channels.
"""

from __future__ import annotations

from logproof.ir.message import Message, OpaquePart, Part, ReasoningPart, TextPart
from logproof.ir.response import Choice


def to_message(choice: Choice) -> Message:
    """The choice as an assistant message: its `turn` where the dialect gave one, else opaque blobs, reasoning,
    text and tool calls in that order.

    A choice with nothing in it gives `content=None`. A refusal is part of a lifted `turn` only.
    """
    parts = derived_parts(choice) if choice.turn is None else choice.turn
    return Message("assistant", parts or None)


def derived_parts(choice: Choice) -> tuple[Part, ...]:
    """The parts that the channels of a choice make; an empty text is left out, and so is a refusal."""
    blobs: tuple[Part, ...] = tuple(OpaquePart(blob) for blob in choice.opaque)
    reasoning: tuple[Part, ...] = (ReasoningPart(choice.reasoning),) if choice.reasoning else ()
    text: tuple[Part, ...] = (TextPart(choice.text),) if choice.text else ()
    return blobs + reasoning + text + choice.tool_calls
