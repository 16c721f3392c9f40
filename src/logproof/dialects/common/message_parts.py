"""The walk over messages and their parts that every wire of messages shares.

A wire says what it cannot carry as faults: a feature of `input.messages` (ir/message.py) with the reason. The walk
refuses the leaf of each, gives back the messages without what the caller allowed to be dropped, and declares the rest
as sent within the pointer at which the wire puts its messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from logproof.dialects.ledger import Ledger
from logproof.ir.message import (
    ImagePart,
    Message,
    Opaque,
    OpaquePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

Fault = tuple[str, str]
"""(feature, reason); the feature is empty for `input.messages` itself."""

_KINDS: dict[type[Part], str] = {
    ImagePart: "image",
    ToolCallPart: "tool_call",
    ToolResultPart: "tool_result",
    ReasoningPart: "reasoning",
    OpaquePart: "opaque",
}
"""Kind of part -> the feature that stands for it."""

_JSON_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


def walk(
    messages: Iterable[Message],
    of_message: Callable[[Message], Iterable[Fault]],
    of_part: Callable[[Part, Message], Iterable[Fault]],
) -> Iterator[Fault]:
    """The faults of each message and of its parts, in order."""
    for message in messages:
        yield from of_message(message)
        for part in message.content or ():
            yield from of_part(part, message)


def refuse(faults: Iterable[Fault], ledger: Ledger) -> None:
    """Refuse the leaf of each fault."""
    for feature, reason in faults:
        ledger.refuse(f"input.messages.{feature}" if feature else "input.messages", reason)


def without_dropped(messages: Iterable[Message], ledger: Ledger) -> list[Message]:
    """The messages less what was dropped: roles, names, kinds of parts, details of images, blobs on parts."""
    gone = {leaf.removeprefix("input.messages.") for leaf in ledger.active if ledger.stopped(leaf)}
    kept = [m for m in messages if m.role not in gone or m.role == "tool"]
    return [_kept(message, gone) for message in kept] if gone else kept


def _kept(message: Message, gone: set[str]) -> Message:
    content = message.content
    if content is not None:
        content = tuple(_stripped(part, gone) for part in content if _KINDS.get(type(part)) not in gone)
    return Message(message.role, content, None if "name" in gone else message.name)


def _stripped(part: Part, gone: set[str]) -> Part:
    if isinstance(part, ImagePart):
        return replace(part, detail=None) if "image_detail" in gone else part
    if "opaque" in gone and isinstance(part, (TextPart, ToolCallPart, ReasoningPart)):
        return replace(part, opaque=None)
    return part


def cover(ledger: Ledger, pointer: str) -> None:
    """Declare every feature that no other decision was made about as sent within the messages at a pointer."""
    sent = ledger.sent()
    for leaf in ledger.active:
        if leaf.startswith("input.messages.") and leaf not in sent and not ledger.stopped(leaf):
            ledger.covered(leaf, pointer)


def lone_system_faults(messages: Sequence[Message], lead: Sequence[Message], reason: str) -> Iterator[Fault]:
    """Faults of system texts (`lead`) on a wire that has a field for one, before all turns."""
    if list(messages[: len(lead)]) != list(lead):
        yield lead[-1].role, reason
    for message in lead:
        if message.name is not None:
            yield "name", "this wire has no participant names"
        if not message.content or any(not isinstance(p, TextPart) for p in message.content):
            yield message.role, "the system text of this wire is text alone"


def bare_turn_faults(message: Message) -> Iterator[Fault]:
    """Faults of a turn on a wire without names and without empty turns."""
    if message.name is not None:
        yield "name", "this wire has no participant names"
    if not message.content:
        yield "null_content" if message.content is None else "", "this wire has no empty turns"


def blob_faults(part: Part, dialect: str) -> Iterator[Fault]:
    """A blob of another wire has no meaning on this one."""
    opaque = getattr(part, "opaque", None)
    if isinstance(opaque, Opaque) and opaque.dialect != dialect:
        yield "opaque", f"a blob of {opaque.dialect} means nothing here"


def argument_faults(part: ToolCallPart) -> Iterator[Fault]:
    """Faults of a call on a wire whose arguments are JSON, not text."""
    if json_object(part.arguments) is None:
        yield "tool_call", "arguments on this wire are a JSON object, and these are not"


def json_object(text: str) -> msgspec.Raw | None:
    """A JSON object as it is written, or None for anything else."""
    try:
        _JSON_OBJECT.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return msgspec.Raw(text.encode())
