"""Images of messages, as OpenAI's two chat wires take them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from logproof.ir.facts import Facts
from logproof.ir.message import ImagePart

DETAILS = ("low", "high", "auto", "original")

_MEDIA_TYPE = re.compile(r"[a-z0-9.+-]+/[a-z0-9.+-]+")


def image_faults(image: ImagePart, role: str, facts: Facts) -> Iterator[tuple[str, str]]:
    """(leaf, reason) of everything about an image that these wires cannot carry."""
    leaf = "input.messages.image"
    if role != "user":
        yield leaf, "images stand in user messages on this wire"
    if (image.url is None) == (image.data is None):
        yield leaf, "an image has either a url or data"
    if image.data is not None and _MEDIA_TYPE.fullmatch(image.media_type or "") is None:
        yield leaf, f"inline data needs a media type such as image/png, got {image.media_type!r}"
    if image.detail is not None and image.detail not in DETAILS:
        yield "input.messages.image_detail", f"detail is one of {', '.join(DETAILS)} on this wire"
    if image.detail is not None and facts.engine == "vllm":
        yield "input.messages.image_detail", "vLLM ignores it"


def image_url(image: ImagePart) -> str:
    """The image's URL, a data URL for inline data."""
    return image.url if image.url is not None else f"data:{image.media_type};base64,{image.data}"
