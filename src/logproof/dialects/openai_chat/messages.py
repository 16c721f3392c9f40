"""Chat messages in the form of the chat wire, and what of them it cannot carry.

`lower_messages` decides the `input.messages.*` leaves; the messages themselves stand at `/messages`. A tool
message with several results becomes one wire message each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from logproof.dialects.common.message_parts import Fault, cover, refuse, walk, without_dropped
from logproof.dialects.common.openai_parts import image_url, part_faults, tool_message_faults
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
    refuse(walk(messages, _message_faults, lambda part, message: _part_faults(part, message.role, facts)), ledger)
    if messages and messages[-1].role == "assistant":
        refuse(_prefill_faults(messages[-1], facts), ledger)
    kept = without_dropped(messages, ledger)
    ledger.send("input.messages", POINTER, [w for m in kept for w in _lowered(m, facts)])
    cover(ledger, POINTER)


def _message_faults(message: Message) -> Iterator[Fault]:
    if message.name is not None and message.role == "tool":
        yield "name", "a tool message has no name on this wire"
    if message.content is None and message.role != "assistant":
        yield "null_content", "only an assistant message may have null content on this wire"
    yield from tool_message_faults(message)


def _part_faults(part: Part, role: str, facts: Facts) -> Iterator[Fault]:
    yield from part_faults(part, role, facts)
    match part:
        case ReasoningPart() if facts.engine not in REASONING_FIELD or role != "assistant":
            yield "reasoning", "this wire takes back no reasoning; openai_responses does"
        case OpaquePart() if not _is_refusal(part.opaque) or role != "assistant":
            yield "opaque", f"{part.opaque.dialect}'s {part.opaque.kind} has no place on this wire"
    blob = getattr(part, "opaque", None)
    if blob is not None and not isinstance(part, OpaquePart):
        yield "opaque", f"{blob.dialect}'s {blob.kind} on a part has no place on this wire"


def _prefill_faults(last: Message, facts: Facts) -> Iterator[Fault]:
    if facts.engine not in ("vllm", "sglang"):
        yield "prefill", "this wire continues no assistant turn; vLLM and SGLang endpoints do"
    elif not last.content or any(not isinstance(p, TextPart) for p in last.content):
        yield "prefill", "only an assistant turn of text can be continued"


def _is_refusal(opaque: Opaque) -> bool:
    return opaque.dialect == DIALECT and opaque.kind == "refusal" and isinstance(opaque.blob, str)


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
