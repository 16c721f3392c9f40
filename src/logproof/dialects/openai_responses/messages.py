"""Chat messages as input items of the Responses wire, and what of them it cannot carry.

Each text, call, result and reasoning part is an item of its own. A part that was lifted from this wire holds its
item in `opaque`; the item goes back as it came, because ids, phases and encrypted reasoning must return unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from logproof.dialects.common.message_parts import Fault, cover, refuse, walk, without_dropped
from logproof.dialects.common.openai_parts import image_url, part_faults, tool_message_faults
from logproof.dialects.ledger import Ledger
from logproof.ir.facts import Facts
from logproof.ir.message import (
    ImagePart,
    Message,
    Opaque,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

DIALECT = "openai_responses"
POINTER = "/input"


def lower_messages(messages: Sequence[Message], facts: Facts, ledger: Ledger) -> None:
    """Send the messages as items and decide every feature of them."""
    refuse(walk(messages, _message_faults, lambda part, message: _part_faults(part, message.role, facts)), ledger)
    if messages and messages[-1].role == "assistant":
        refuse(_prefill_faults(messages[-1], facts), ledger)
    items = [item for message in without_dropped(messages, ledger) for item in _items(message)]
    ledger.send("input.messages", POINTER, items)
    if items and "input.messages.prefill" in ledger.active and not ledger.stopped("input.messages.prefill"):
        items[-1] = _unfinished(items[-1])
        ledger.covered("input.messages.prefill", f"{POINTER}/{len(items) - 1}/status")
    cover(ledger, POINTER)


def message_text(item: Mapping[str, object]) -> str:
    """The visible text of a message item."""
    return "".join(str(p.get("text")) for p in _dicts(item.get("content")) if p.get("type") == "output_text")


def reasoning_text(item: Mapping[str, object]) -> str:
    """The text of a reasoning item: what the model wrote where that is shown, else the summary."""
    shown = [str(p.get("text")) for p in _dicts(item.get("content"))]
    return "".join(shown) or "\n\n".join(str(p.get("text")) for p in _dicts(item.get("summary")))


def _dicts(value: object) -> list[dict[str, object]]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, (list, tuple)) else []


def _message_faults(message: Message) -> Iterator[Fault]:
    if message.name is not None:
        yield "name", "a message has no name on this wire; use openai_chat"
    if message.content is None:
        yield "null_content", "this wire has no empty turn: leave it out, or use openai_chat"
    yield from tool_message_faults(message)


def _part_faults(part: Part, role: str, facts: Facts) -> Iterator[Fault]:
    yield from part_faults(part, role, facts)
    if isinstance(part, ReasoningPart) and (role != "assistant" or (part.opaque is None and facts.engine != "vllm")):
        yield "reasoning", "reasoning goes back as the item it came in: keep the part's opaque"
    opaque = getattr(part, "opaque", None)
    if opaque is not None:
        yield from _opaque_faults(part, opaque, role)


def _opaque_faults(part: Part, opaque: Opaque, role: str) -> Iterator[Fault]:
    if opaque.dialect != DIALECT or not isinstance(opaque.blob, dict) or role != "assistant":
        yield "opaque", f"{opaque.dialect}'s {opaque.kind} has no place on this wire"
    elif not _agrees(part, opaque.blob):
        yield "opaque", "the part was changed and its item was not: leave the part's opaque out"


def _agrees(part: Part, item: Mapping[str, object]) -> bool:
    match part:
        case TextPart(text=text):
            return text == message_text(item)
        case ReasoningPart(text=text):
            return text == reasoning_text(item)
        case ToolCallPart():
            return (part.id, part.name, part.arguments) == tuple(item.get(n) for n in ("call_id", "name", "arguments"))
        case _:
            return True


def _prefill_faults(last: Message, facts: Facts) -> Iterator[Fault]:
    if facts.engine != "vllm":
        yield "prefill", "this wire continues no assistant turn; vLLM endpoints do"
    elif not last.content or not isinstance(last.content[-1], TextPart):
        yield "prefill", "only an assistant turn that ends in text can be continued"


def _items(message: Message) -> Iterator[dict[str, object]]:
    parts = message.content or ()
    if message.role == "tool":
        for part in parts:
            if isinstance(part, ToolResultPart):
                yield {"type": "function_call_output", "call_id": part.call_id, "output": part.content}
    elif message.role == "assistant":
        if message.content == ():
            yield _message(message.role, "")
        for part in parts:
            yield _own_item(part) if getattr(part, "opaque", None) is not None else _item(part)
    elif message.content is not None:
        yield _message(message.role, _content(parts))


def _own_item(part: Part) -> dict[str, object]:
    opaque = getattr(part, "opaque", None)
    blob = opaque.blob if isinstance(opaque, Opaque) else None
    return blob if isinstance(blob, dict) else {}


def _item(part: Part) -> dict[str, object]:
    match part:
        case ToolCallPart():
            return {"type": "function_call", "call_id": part.id, "name": part.name, "arguments": part.arguments}
        case ReasoningPart():
            return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": part.text}]}
        case TextPart():
            return _message("assistant", part.text)
        case _:
            return {}


def _message(role: str, content: object) -> dict[str, object]:
    return {"type": "message", "role": role, "content": content}


def _content(parts: Sequence[Part]) -> object:
    shown = [p for p in parts if isinstance(p, (TextPart, ImagePart))]
    if not shown:
        return ""
    if len(shown) == 1 and isinstance(shown[0], TextPart):
        return shown[0].text
    return [{"type": "input_text", "text": p.text} if isinstance(p, TextPart) else _image(p) for p in shown]


def _image(image: ImagePart) -> dict[str, object]:
    return {"type": "input_image", "image_url": image_url(image), "detail": image.detail or "auto"}


def _unfinished(item: dict[str, object]) -> dict[str, object]:
    """A message item as vLLM takes one to continue."""
    content = item.get("content")
    parts = [{"type": "output_text", "text": content, "annotations": []}] if isinstance(content, str) else content
    return {**item, "status": "in_progress", "content": parts}
