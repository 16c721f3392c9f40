"""Token ids and token texts kept apart.

vLLM writes `token_id:N` in place of a token's text when asked for ids (`return_tokens_as_token_ids`); this
is the one place that reads and writes that form.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

_PLACEHOLDER = re.compile(r"token_id:(0|[1-9][0-9]{0,9})")
MAX_ID = 2**31 - 1


def placeholder(token_id: int) -> str:
    """The `token_id:N` form of an id. Raises ValueError outside 0..2**31-1."""
    if isinstance(token_id, bool) or not 0 <= token_id <= MAX_ID:
        raise ValueError(f"no token id: {token_id!r}")
    return f"token_id:{token_id}"


def placeholder_id(text: str) -> int | None:
    """The id in a `token_id:N` text, or None where the text is anything else (signs, spaces, other digits)."""
    match = _PLACEHOLDER.fullmatch(text)
    if match is None:
        return None
    token_id = int(match[1])
    return token_id if token_id <= MAX_ID else None


_IDS = msgspec.json.Decoder(list[int])
_MARK = b",token_id:"
_DIGITS = b"0123456789"


def placeholder_ids(texts: Sequence[str]) -> list[int] | None:
    """The ids of `token_id:N` texts, or None where one of them is anything else; see `placeholder_id`.

    All texts are read as one list of JSON numbers where they hold one unbroken prefix each, and digits behind it,
    and nothing else; whatever is not so is read one by one.
    """
    joined = ("," + ",".join(texts)).encode(errors="replace")
    if joined.count(_MARK) == len(texts) and joined.translate(None, _DIGITS) == _MARK * len(texts):
        try:
            ids = _IDS.decode(b"[" + joined[1:].translate(None, b"token_id:") + b"]")
        except msgspec.DecodeError:
            return None
        if max(ids, default=0) <= MAX_ID:
            return ids
    ids = [i for i in map(placeholder_id, texts) if i is not None]
    return ids if len(ids) == len(texts) else None
