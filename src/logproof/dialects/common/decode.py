"""Typed decoding of reply bodies, with the JSON path of the first fault.

Bodies come from outside: msgspec refuses wrong types, NaN and cut JSON; what it says is turned into a
BadReply. It does not look into what it skips, so bytes that are no UTF-8 are refused here: a damaged name would pass as
an unknown field, and the field as absent. An error object inside a reply of status 200 becomes a StatusError.
"""

from __future__ import annotations

import codecs
import re
from typing import TypeVar

import msgspec

from logproof.errors import BadReply, clip
from logproof.http.faults import error_in_body

T = TypeVar("T")

_PIECE = 2**16
"""Bytes that are decoded at once where nothing but their validity is wanted."""

_AT = re.compile(r" - at `\$?(?P<path>[^`]*)`$")


def decode(decoder: msgspec.json.Decoder[T], body: bytes, at: str = "") -> T:
    """Decode a reply body, or the piece of one at a JSON pointer.

    Raises BadReply for foreign or broken JSON, StatusError for an error object.
    """
    try:
        _check_utf8(body)
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        fault = error_in_body(body.decode(errors="replace"))
        if fault is not None:
            raise fault from None
        message, path = split_path(str(error))
        raise BadReply(message, path=f"{at}{path}") from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadReply(f"no JSON: {clip(str(error), 120)}; it begins {_head(body)}") from None


def _check_utf8(body: bytes) -> None:
    """Raise UnicodeDecodeError for bytes that are no UTF-8; in pieces, as one text of a large body costs far more."""
    at, end = 0, 0 if body.isascii() else len(body)
    while at < end:
        at += codecs.utf_8_decode(body[at : at + _PIECE], "strict", at + _PIECE >= end)[1]


def split_path(message: str) -> tuple[str, str]:
    """(text, JSON pointer) of a msgspec message such as "... - at `$.choices[0].text`"."""
    match = _AT.search(message)
    if match is None:
        return message, ""
    pointer = re.sub(r"\[(\d+|\.\.\.)\]", r"/\1", match["path"].replace(".", "/").replace("[///]", "/*"))
    return message[: match.start()], pointer


def _head(body: bytes) -> str:
    return repr(clip(body[:120].decode("utf-8", "replace"), 80)) if body else "empty"
