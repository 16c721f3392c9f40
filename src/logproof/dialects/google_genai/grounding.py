"""Citations of a Gemini candidate, their byte spans turned into character spans of the choice's text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec

from logproof.ir.message import Part, TextPart
from logproof.ir.response import Citation

T = TypeVar("T")


class Source(msgspec.Struct, gc=False, rename="camel"):
    """A citation source."""

    uri: str | None = None
    title: str | None = None
    start_index: int | None = None
    end_index: int | None = None


class Segment(msgspec.Struct, gc=False, rename="camel"):
    """Bytes of one part; an absent start or part is 0."""

    start_index: int = 0
    end_index: int | None = None
    part_index: int = 0


class GroundingSupport(msgspec.Struct, gc=False, rename="camel"):
    segment: Segment | None = None
    grounding_chunk_indices: list[int] = []


class Web(msgspec.Struct, gc=False):
    uri: str | None = None
    title: str | None = None


class Grounding(msgspec.Struct, gc=False, rename="camel"):
    """The parts of grounding metadata that make citations."""

    grounding_chunks: list[dict[str, object]] = []
    grounding_supports: list[GroundingSupport] = []


def lift_citations(
    cited: dict[str, object] | None, grounding: dict[str, object] | None, turn: Sequence[Part]
) -> Iterator[Citation]:
    """Citations of both kinds. A span that does not lie on characters of the text stays unknown."""
    text = "".join(p.text for p in turn if isinstance(p, TextPart))
    yield from _sources(cited or {}, text)
    yield from _supports(grounding or {}, text, turn)


def _sources(cited: dict[str, object], text: str) -> Iterator[Citation]:
    """The public endpoint names its list citationSources, the enterprise one citations."""
    listed = cited.get("citationSources") or cited.get("citations")
    for item in listed if isinstance(listed, list) else ():
        source = _read(item, Source)
        if source is not None:
            start, end = _chars(text, source.start_index or 0), _chars(text, source.end_index)
            yield Citation("citation", source.uri, source.title, *_span(start, end, 0), item)


def _supports(grounding: dict[str, object], text: str, turn: Sequence[Part]) -> Iterator[Citation]:
    found = _read(grounding, Grounding)
    for support in found.grounding_supports if found else ():
        segment = support.segment or Segment()
        part, offset = _text_part(turn, segment.part_index)
        start, end = _chars(part, segment.start_index), _chars(part, segment.end_index)
        for at in support.grounding_chunk_indices:
            chunk = found.grounding_chunks[at] if found and 0 <= at < len(found.grounding_chunks) else {}
            web = next((w for v in chunk.values() if (w := _read(v, Web)) is not None), Web())
            yield Citation("grounding", web.uri, web.title, *_span(start, end, offset), chunk)


def _text_part(turn: Sequence[Part], index: int) -> tuple[str, int]:
    """Text of a part, and the characters of the choice's text before it."""
    before = sum(len(p.text) for p in turn[:index] if isinstance(p, TextPart))
    part = turn[index] if 0 <= index < len(turn) else None
    return (part.text if isinstance(part, TextPart) else ""), before


def _span(start: int | None, end: int | None, offset: int) -> tuple[int | None, int | None]:
    if start is None or end is None:
        return None, None
    return start + offset, end + offset


def _chars(text: str, index: int | None) -> int | None:
    """Characters in the first `index` bytes of a text, or None outside it and inside a character."""
    raw = text.encode()
    if index is None or not 0 <= index <= len(raw):
        return None
    try:
        return len(raw[:index].decode())
    except UnicodeDecodeError:
        return None


def _read(value: object, kind: type[T]) -> T | None:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return None
