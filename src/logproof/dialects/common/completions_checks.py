"""Second witnesses of a completions reply's scored tokens: where each begins in the text, and how many there are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from logproof.dialects.common import logprobs
from logproof.dialects.common.token_texts import PARTIAL
from logproof.errors import BadReply
from logproof.ir.request import Request
from logproof.ir.tokens import placeholder_id


def check_offsets(tokens: Sequence[str], offsets: Sequence[int] | None, path: str) -> None:
    """Text offsets witness the order of tokens, and each plain token, which ends where the next one begins.

    Servers count in characters or in bytes, and give an offset no sense inside a character or beside ids; one
    that gives every token 0 or -1 tells nothing. Raises BadReply.
    """
    if not offsets:
        return
    logprobs.same_length(f"{path}/text_offset", len(tokens), len(offsets), "tokens")
    telling = placeholder_id(tokens[0]) is None and max(offsets) > 0
    if not telling and offsets == sorted(offsets):
        return
    for i, (begin, end) in enumerate(pairwise(offsets)):
        if end < begin:
            raise BadReply("this token begins before the one in front of it", path=f"{path}/text_offset/{i + 1}")
        token, length = tokens[i], end - begin
        if length != len(token) and telling and _is_plain(token) and length != len(token.encode()):
            message = f"the token {token!r} takes {length} characters of the text"
            raise BadReply(message, path=f"{path}/text_offset/{i + 1}")


def _is_plain(token: str) -> bool:
    """Whether a token's text is its own, not that of a piece of a character."""
    return token != "" and PARTIAL not in token and not token.startswith("bytes:")


def check_counted(request: Request, reported: int | None, *, named: bool) -> None:
    """Refuse scored tokens that nothing else counts: a lost one would not show.

    reported: usage. named: whether every choice has ids beside its scores; in a stream they are lost together.
    Raises BadReply.
    """
    scored = request.scoring.sampled is not None or request.scoring.label_ids is not None
    if scored and reported is None and (request.schedule.stream or not named):
        hint = "ask without streaming, or an endpoint that reports usage"
        raise BadReply("nothing in the reply says how many tokens were sampled", path="/usage", hint=hint)
