"""Chat messages in the form of the chat wire, and what of them it cannot carry.

`lower_messages` decides the `input.messages.*` leaves; the messages themselves stand at `/messages`. A tool
message with several results becomes one wire message each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from logproof.dialects.common.openai_images import image_faults, image_url
from logproof.dialects.ledger import Ledger
from logproof.ir.facts import Facts
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

DIALECT = "openai_chat"
POINTER = "/messages"
REASONING_FIELD = {"vllm": "reasoning", "sglang": "reasoning_content"}
"""Field of an assistant message that takes back reasoning text; OpenAI's wire has none."""


def lower_messages(messages: Sequence[Message], facts: Facts, ledger: Ledger) -> None:
    """Send the messages and decide every feature of them."""
    for leaf, reason in _faults(messages, facts):
        ledger.refuse(leaf, reason)
    kept = _without_dropped(messages, ledger)
    ledger.send("input.messages", POINTER, [w for m in kept for w in _lowered(m, facts)])
    for leaf in [leaf for leaf in ledger.active if leaf.startswith("input.messages.")]:
        if not ledger.stopped(leaf):
            ledger.covered(leaf, POINTER)


def _faults(messages: Sequence[Message], facts: Facts) -> Iterator[tuple[str, str]]:
    """(leaf, reason) of everything that this wire cannot carry."""
    for message in messages:
        if message.name is not None and message.role == "tool":
            yield "input.messages.name", "a tool message has no name on this wire"
        if message.content is None and message.role != "assistant":
            yield "input.messages.null_content", "only an assistant message may have null content on this wire"
        if message.role == "tool" and not any(isinstance(p, ToolResultPart) for p in message.content or ()):
            yield "input.messages.tool", "a tool message holds tool results, each with its call's id"
        for part in message.content or ():
            yield from _part_faults(part, message.role, facts)
    last = messages[-1] if messages else None
    if last is not None and last.role == "assistant":
        yield from _prefill_faults(last, facts)


def _part_faults(part: Part, role: str, facts: Facts) -> Iterator[tuple[str, str]]:
    match part:
        case TextPart() if role == "tool":
            yield "input.messages.tool", "a tool message holds tool results, and no other part, on this wire"
        case ImagePart():
            yield from image_faults(part, role, facts)
        case ToolCallPart() if role != "assistant":
            yield "input.messages.tool_call", "tool calls stand in assistant messages on this wire"
        case ToolResultPart() if role != "tool":
            yield "input.messages.tool_result", "tool results stand in tool messages on this wire"
        case ToolResultPart(is_error=True):
            yield "input.messages.tool_error", "this wire has no mark for a failed call: say so in its content"
        case ReasoningPart() if facts.engine not in REASONING_FIELD or role != "assistant":
            yield "input.messages.reasoning", "this wire takes back no reasoning; openai_responses does"
        case OpaquePart() if not _is_refusal(part.opaque) or role != "assistant":
            yield "input.messages.opaque", f"{part.opaque.dialect}'s {part.opaque.kind} has no place on this wire"
    signed = getattr(part, "opaque", None)
    if signed is not None and not isinstance(part, OpaquePart):
        yield "input.messages.opaque", f"{signed.dialect}'s {signed.kind} on a part has no place on this wire"


def _prefill_faults(last: Message, facts: Facts) -> Iterator[tuple[str, str]]:
    leaf = "input.messages.prefill"
    if facts.engine not in ("vllm", "sglang"):
        yield leaf, "this wire continues no assistant turn; vLLM and SGLang endpoints do"
    elif not last.content or any(not isinstance(p, TextPart) for p in last.content):
        yield leaf, "only an assistant turn of text can be continued"


def _is_refusal(opaque: Opaque) -> bool:
    return opaque.dialect == DIALECT and opaque.kind == "refusal" and isinstance(opaque.blob, str)


_PART_LEAVES: tuple[tuple[type[Part], str], ...] = (
    (ImagePart, "image"),
    (ToolCallPart, "tool_call"),
    (ToolResultPart, "tool_result"),
    (ReasoningPart, "reasoning"),
    (OpaquePart, "opaque"),
)


def _without_dropped(messages: Sequence[Message], ledger: Ledger) -> list[Message]:
    """The messages less the parts whose leaf was refused and may be dropped."""
    gone = tuple(kind for kind, name in _PART_LEAVES if ledger.stopped(f"input.messages.{name}"))
    kept = []
    for message in messages:
        content = message.content
        if gone and content is not None:
            content = tuple(p for p in content if not isinstance(p, gone))
        name = None if ledger.stopped("input.messages.name") else message.name
        kept.append(Message(message.role, content, name))
    return kept


def _lowered(message: Message, facts: Facts) -> Iterator[dict[str, object]]:
    if message.role == "tool":
        for part in message.content or ():
            if isinstance(part, ToolResultPart):
                yield {"role": "tool", "tool_call_id": part.call_id, "content": part.content}
        return
    wire: dict[str, object] = {"role": message.role}
    if message.name is not None:
        wire["name"] = message.name
    wire["content"] = _content(message.content)
    for part in message.content or ():
        match part:
            case ReasoningPart(text=text):
                field = REASONING_FIELD.get(facts.engine or "", "reasoning")
                wire[field] = f"{wire.get(field, '')}{text}"
            case OpaquePart(opaque=opaque) if _is_refusal(opaque):
                wire["refusal"] = opaque.blob
            case _:
                pass
    calls = [_call(p) for p in message.content or () if isinstance(p, ToolCallPart)]
    if calls:
        wire["tool_calls"] = calls
    yield wire


def _content(parts: Sequence[Part] | None) -> object:
    """Null without text beside other parts; a string for one text or none at all; else a list of parts."""
    shown = [p for p in parts or () if isinstance(p, (TextPart, ImagePart))]
    if not shown:
        return None if parts is None or parts else ""
    if len(shown) == 1 and isinstance(shown[0], TextPart):
        return shown[0].text
    return [{"type": "text", "text": p.text} if isinstance(p, TextPart) else _image(p) for p in shown]


def _image(image: ImagePart) -> dict[str, object]:
    detail = {"detail": image.detail} if image.detail is not None else {}
    return {"type": "image_url", "image_url": {"url": image_url(image), **detail}}


def _call(call: ToolCallPart) -> dict[str, object]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
