"""Chat input: messages, each an ordered tuple of content parts.

Texts, ids, JSON arguments and opaque blobs go through unchanged, so that a turn that was lifted from a
reply can be sent back byte for byte. `content=None` is a null on the wire and distinct from `()`.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal

import msgspec

Role = Literal["system", "developer", "user", "assistant", "tool"]


class Opaque(msgspec.Struct, frozen=True):
    """A blob that must return to its own wire unchanged (encrypted reasoning, a signature).

    dialect: the wire it came from; only that wire takes it back. kind: the wire's name for it.
    blob: the JSON value as received.
    """

    dialect: str
    kind: str
    blob: object


class TextPart(msgspec.Struct, frozen=True, tag="text"):
    """Text. opaque: a signature that the wire attached to this part."""

    text: str
    opaque: Opaque | None = None


class ImagePart(msgspec.Struct, frozen=True, tag="image"):
    """One image: either `url`, or `data` (base64) with its `media_type`. detail: the wire's word for resolution."""

    url: str | None = None
    data: str | None = None
    media_type: str | None = None
    detail: str | None = None


class ToolCallPart(msgspec.Struct, frozen=True, tag="tool_call"):
    """A function call by the model. arguments: JSON text exactly as the model wrote it, perhaps invalid."""

    id: str
    name: str
    arguments: str
    opaque: Opaque | None = None


class ToolResultPart(msgspec.Struct, frozen=True, tag="tool_result"):
    """The caller's answer to a tool call. name: the function, for wires that ask for it."""

    call_id: str
    content: str
    is_error: bool | None = None
    name: str | None = None


class ReasoningPart(msgspec.Struct, frozen=True, tag="reasoning"):
    """Reasoning text of an earlier turn. opaque: the signature or item it came in."""

    text: str
    opaque: Opaque | None = None


class OpaquePart(msgspec.Struct, frozen=True, tag="opaque"):
    """A whole content item that only its own wire understands, kept in its place among the parts."""

    opaque: Opaque


Part = TextPart | ImagePart | ToolCallPart | ToolResultPart | ReasoningPart | OpaquePart


class Message(msgspec.Struct, frozen=True):
    """One turn. content None is null on the wire. name: participant name where the wire has one."""

    role: Role
    content: tuple[Part, ...] | None
    name: str | None = None

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return "".join(p.text for p in self.content or () if isinstance(p, TextPart))


def text_message(role: Role, text: str) -> Message:
    """A message of one text part."""
    return Message(role, (TextPart(text),))


def features(messages: tuple[Message, ...]) -> dict[str, int]:
    """What a dialect must decide about in these messages: feature -> how often it occurs.

    Features: a role (`system`, `developer`, `tool`), a kind of part (`image`, `image_detail`, `tool_call`,
    `tool_result`, `tool_error`, `reasoning`, `opaque`), `name`, `null_content`, and `prefill` when the last
    turn is the assistant's. Users' and assistants' text belong to `messages` itself.
    """
    found = Counter(feature for message in messages for feature in _features_of(message))
    if messages and messages[-1].role == "assistant":
        found["prefill"] = 1
    return dict(found)


def _features_of(message: Message) -> list[str]:
    found: list[str] = [message.role] if message.role in ("system", "developer", "tool") else []
    if message.name is not None:
        found.append("name")
    if message.content is None:
        found.append("null_content")
    for part in message.content or ():
        found += _features_of_part(part)
    return found


def _features_of_part(part: Part) -> list[str]:
    match part:
        case ImagePart():
            return ["image"] + (["image_detail"] if part.detail is not None else [])
        case ToolResultPart():
            return ["tool_result"] + (["tool_error"] if part.is_error else [])
        case OpaquePart():
            return ["opaque"]
        case ToolCallPart():
            return ["tool_call", *_signed(part.opaque)]
        case ReasoningPart():
            return ["reasoning", *_signed(part.opaque)]
        case TextPart():
            return _signed(part.opaque)


def _signed(opaque: Opaque | None) -> list[str]:
    return ["opaque"] if opaque is not None else []
