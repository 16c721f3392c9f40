"""Token ids and token texts kept apart.

vLLM writes `token_id:N` in place of a token's text when asked for ids (`return_tokens_as_token_ids`); this
is the one place that reads and writes that form.
"""

from __future__ import annotations

import re

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
