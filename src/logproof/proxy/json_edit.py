"""Edits of JSON text in place: every byte outside the edited values stays, so do key order and number spelling.

msgspec finds where each value ends; the walk here only counts along. Pure.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

T = TypeVar("T")

Span = tuple[int, int]
"""Start and end of a value in its text."""
Change = tuple[int, int, bytes]
"""Start, end and what comes in place of that span."""

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_SPACE = re.compile(rb"[ \t\r\n]*")
_KEY = re.compile(rb'[ \t\r\n]*"(?:[^"\\]|\\.)*"[ \t\r\n]*:[ \t\r\n]*')
_NEXT = re.compile(rb"[ \t\r\n]*[,}\]]")


def members(text: bytes) -> dict[str, Span]:
    """Where the value of each key lies. Raises ValueError where the text is no JSON object, or a key comes twice."""
    fields = _decode(_OBJECT, text)
    spans: dict[str, Span] = {}
    at = _after(_SPACE, text, 0) + 1
    for name, raw in fields.items():
        start = _after(_KEY, text, at)
        spans[name] = (start, _end(text, start, bytes(raw)))
        at = _after(_NEXT, text, spans[name][1])
    _check_end(text, at, b"}", empty=not fields)
    return spans


def elements(text: bytes) -> list[Span]:
    """Where each element of an array lies. Raises ValueError where the text is no JSON array."""
    items = _decode(_ARRAY, text)
    spans: list[Span] = []
    at = _after(_SPACE, text, 0) + 1
    for raw in items:
        start = _after(_SPACE, text, at)
        spans.append((start, _end(text, start, bytes(raw))))
        at = _after(_NEXT, text, spans[-1][1])
    return spans


def apply(text: bytes, changes: list[Change]) -> bytes:
    """The text with its spans replaced; changes are sorted and do not overlap."""
    pieces, at = [], 0
    for start, end, value in changes:
        pieces += [text[at:start], value]
        at = end
    pieces.append(text[at:])
    return b"".join(pieces)


def with_members(text: bytes, values: dict[str, bytes]) -> bytes:
    """The object with these keys set to these JSON texts: replaced where they are, added at the end otherwise."""
    spans = members(text)
    changes = [(*spans[name], value) for name, value in values.items() if name in spans]
    fresh = [msgspec.json.encode(name) + b":" + value for name, value in values.items() if name not in spans]
    if fresh:
        close = text.rindex(b"}")
        changes.append((close, close, (b"," if spans else b"") + b",".join(fresh)))
    return apply(text, sorted(changes))


def _decode(decoder: msgspec.json.Decoder[T], text: bytes) -> T:
    try:
        return decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def _after(pattern: re.Pattern[bytes], text: bytes, at: int) -> int:
    match = pattern.match(text, at)
    if match is None:
        raise ValueError("a key comes twice")
    return match.end()


def _end(text: bytes, start: int, value: bytes) -> int:
    if not text.startswith(value, start):
        raise ValueError("a key comes twice")
    return start + len(value)


def _check_end(text: bytes, at: int, close: bytes, *, empty: bool) -> None:
    if not empty and text[at - 1 : at] != close:
        raise ValueError("a key comes twice")
