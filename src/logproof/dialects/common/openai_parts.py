"""Parts of messages as OpenAI's two chat wires take them: which stand in which message, and images."""

from __future__ import annotations

import re
from collections.abc import Iterator

from logproof.dialects.common.message_parts import Fault
from logproof.ir.facts import Facts
from logproof.ir.message import ImagePart, Message, Part, TextPart, ToolCallPart, ToolResultPart

DETAILS = ("low", "high", "auto", "original")

_MEDIA_TYPE = re.compile(r"[a-z0-9.+-]+/[a-z0-9.+-]+")


def tool_message_faults(message: Message) -> Iterator[Fault]:
    """A tool message holds results."""
    if message.role == "tool" and not any(isinstance(p, ToolResultPart) for p in message.content or ()):
        yield "tool", "a tool message holds tool results, each with its call's id"


def part_faults(part: Part, role: str, facts: Facts) -> Iterator[Fault]:
    """Faults of everything but reasoning and blobs, which the two wires take differently."""
    match part:
        case TextPart() if role == "tool":
            yield "tool", "a tool message holds tool results, and no other part, on this wire"
        case ImagePart():
            yield from _image_faults(part, role, facts)
        case ToolCallPart() if role != "assistant":
            yield "tool_call", "tool calls stand in assistant messages on this wire"
        case ToolResultPart() if role != "tool":
            yield "tool_result", "tool results stand in tool messages on this wire"
        case ToolResultPart(is_error=True):
            yield "tool_error", "this wire has no mark for a failed call: say so in its content"
        case _:
            pass


def _image_faults(image: ImagePart, role: str, facts: Facts) -> Iterator[Fault]:
    if role != "user":
        yield "image", "images stand in user messages on this wire"
    if (image.url is None) == (image.data is None):
        yield "image", "an image has either a url or data"
    if image.data is not None and _MEDIA_TYPE.fullmatch(image.media_type or "") is None:
        yield "image", f"inline data needs a media type such as image/png, got {image.media_type!r}"
    if image.detail is not None and image.detail not in DETAILS:
        yield "image_detail", f"detail is one of {', '.join(DETAILS)} on this wire"
    if image.detail is not None and facts.engine == "vllm":
        yield "image_detail", "vLLM ignores it"


def image_url(image: ImagePart) -> str:
    """The image's URL, a data URL for inline data."""
    return image.url if image.url is not None else f"data:{image.media_type};base64,{image.data}"
