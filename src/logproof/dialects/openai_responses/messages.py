"""Chat messages as input items of the Responses wire, and what of them it cannot carry.

Each text, call, result and reasoning part is an item of its own. A part that was lifted from this wire holds its
item in `opaque`; the item goes back as it came, because ids, phases and encrypted reasoning must return unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

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

DIALECT = "openai_responses"
POINTER = "/input"


def lower_messages(messages: Sequence[Message], facts: Facts, ledger: Ledger) -> None:
    """Send the messages as items and decide every feature of them."""
    for leaf, reason in _faults(messages, facts):
        ledger.refuse(leaf, reason)
    prefill = "input.messages.prefill" in ledger.active and not ledger.stopped("input.messages.prefill")
    items = [item for message in messages for item in _items(message, ledger)]
    if prefill and items:
        items[-1] = _unfinished(items[-1])
    ledger.send("input.messages", POINTER, items)
    for leaf in [leaf for leaf in ledger.active if leaf.startswith("input.messages.")]:
        if not ledger.stopped(leaf):
            ledger.covered(leaf, f"{POINTER}/{len(items) - 1}/status" if leaf.endswith(".prefill") else POINTER)


def message_text(item: Mapping[str, object]) -> str:
    """The visible text of a message item."""
    return "".join(str(p.get("text")) for p in _dicts(item.get("content")) if p.get("type") == "output_text")


def reasoning_text(item: Mapping[str, object]) -> str:
    """The text of a reasoning item: what the model wrote where that is shown, else the summary."""
    shown = [str(p.get("text")) for p in _dicts(item.get("content"))]
    return "".join(shown) or "\n\n".join(str(p.get("text")) for p in _dicts(item.get("summary")))


def _dicts(value: object) -> list[dict[str, object]]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, (list, tuple)) else []


def _faults(messages: Sequence[Message], facts: Facts) -> Iterator[tuple[str, str]]:
    """(leaf, reason) of everything that this wire cannot carry."""
    for message in messages:
        if message.name is not None:
            yield "input.messages.name", "a message has no name on this wire; use openai_chat"
        if message.content is None:
            yield "input.messages.null_content", "this wire has no empty turn: leave it out, or use openai_chat"
        if message.role == "tool" and not any(isinstance(p, ToolResultPart) for p in message.content or ()):
            yield "input.messages.tool", "a tool message holds tool results, each with its call's id"
        for part in message.content or ():
            yield from _part_faults(part, message.role, facts)
    if messages and messages[-1].role == "assistant":
        yield from _prefill_faults(messages[-1], facts)


def _part_faults(part: Part, role: str, facts: Facts) -> Iterator[tuple[str, str]]:
    match part:
        case TextPart() if role == "tool":
            yield "input.messages.tool", "a tool message holds tool results, and no other part, on this wire"
        case ImagePart():
            yield from image_faults(part, role, facts)
        case ToolCallPart() if role != "assistant":
            yield "input.messages.tool_call", "tool calls belong to the assistant"
        case ToolResultPart() if role != "tool":
            yield "input.messages.tool_result", "tool results belong to tool messages"
        case ToolResultPart(is_error=True):
            yield "input.messages.tool_error", "this wire has no mark for a failed call: say so in its content"
        case ReasoningPart() if role != "assistant" or (part.opaque is None and facts.engine != "vllm"):
            yield "input.messages.reasoning", "reasoning goes back as the item it came in: keep the part's opaque"
    opaque = getattr(part, "opaque", None)
    if opaque is not None:
        yield from _opaque_faults(part, opaque, role)


def _opaque_faults(part: Part, opaque: Opaque, role: str) -> Iterator[tuple[str, str]]:
    leaf = "input.messages.opaque"
    if opaque.dialect != DIALECT or not isinstance(opaque.blob, dict) or role != "assistant":
        yield leaf, f"{opaque.dialect}'s {opaque.kind} has no place on this wire"
    elif not _agrees(part, opaque.blob):
        yield leaf, "the part was changed and its item was not: leave the part's opaque out"


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


def _prefill_faults(last: Message, facts: Facts) -> Iterator[tuple[str, str]]:
    leaf = "input.messages.prefill"
    if facts.engine != "vllm":
        yield leaf, "this wire continues no assistant turn; vLLM endpoints do"
    elif not last.content or not isinstance(last.content[-1], TextPart):
        yield leaf, "only an assistant turn that ends in text can be continued"


_PART_LEAVES: tuple[tuple[type[Part], str], ...] = (
    (ImagePart, "image"),
    (ToolCallPart, "tool_call"),
    (ToolResultPart, "tool_result"),
    (ReasoningPart, "reasoning"),
    (OpaquePart, "opaque"),
)


def _items(message: Message, ledger: Ledger) -> Iterator[dict[str, object]]:
    """The items of one message, less the parts whose leaf was refused and may be dropped."""
    gone = tuple(kind for kind, name in _PART_LEAVES if ledger.stopped(f"input.messages.{name}"))
    parts = [p for p in message.content or () if not isinstance(p, gone)]
    sealed = not ledger.stopped("input.messages.opaque")
    if message.role == "tool":
        for part in parts:
            if isinstance(part, ToolResultPart):
                yield {"type": "function_call_output", "call_id": part.call_id, "output": part.content}
    elif message.role == "assistant":
        if message.content == ():
            yield _message(message.role, "")
        for part in parts:
            yield _own_item(part) if sealed and getattr(part, "opaque", None) is not None else _item(part)
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
