"""Token ids and token texts kept apart.

vLLM writes `token_id:N` in place of a token's text when asked for ids (`return_tokens_as_token_ids`); this
is the one place that reads and writes that form.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

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


class _Read(dict[str, int]):
    """Ids of `token_id:N` texts that were read before; the keys of a top channel are few and come again and again."""

    def __missing__(self, text: str) -> int:
        token_id = placeholder_id(text)
        if token_id is None:
            raise KeyError(text)
        if len(self) >= MOST_READ:
            self.clear()
        self[text] = token_id
        return token_id


MOST_READ = 2**16
_read = _Read()


def placeholder_ids(texts: Sequence[str]) -> list[int] | None:
    """The ids of `token_id:N` texts, or None where one of them is anything else; see `placeholder_id`."""
    try:
        return list(map(_read.__getitem__, texts))
    except KeyError:
        return None
