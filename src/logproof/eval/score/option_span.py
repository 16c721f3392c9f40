"""The scored span of a row: which tokens of each option's prompt belong to the option.

Rule, by token ids: all options of a row share one start, the shortest prefix that any option's prompt shares
with the ids of the context alone. Where the tokenizer joins the end of the context with the beginning of an
option, that token is no longer in the shared prefix, so the start moves before it: it counts for every option
of the row alike, and the row's `crossings` say how many options did so.

Where a wire gives no ids, the same rule goes by token texts, and only if they rebuild each prompt exactly: the
start is the number of leading tokens that end within the context, the least over all options.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from logproof.errors import BadReply
from logproof.ir.response import Ids

MAX_WIDENED = 16
"""Most context tokens that a crossing may draw into the span. More means that two tokenisers were at work."""


class Span(msgspec.Struct, frozen=True):
    """start: 0-based index of the first scored token, the same for all options.

    crossings: options whose tokens cross the join. rule: by ids or by texts.
    """

    start: int
    crossings: int
    rule: Literal["ids", "texts"]


def span_by_ids(context: Sequence[int], options: Sequence[Ids]) -> Span:
    """The span of a row. context: ids of the context alone; options: ids of each context + option.

    Raises BadReply where no context token stands before the span, an option has no token in it, or the prompts
    do not begin as the context does.
    """
    alone = np.asarray(context, dtype=np.int64)
    shared = [_shared(alone, ids) for ids in options]
    start = min(shared)
    if len(alone) - start > MAX_WIDENED:
        raise BadReply(
            f"the prompts share {start} of the context's {len(alone)} tokens: they were tokenised otherwise",
            hint="let the serving engine tokenise, or name the tokenizer it uses",
        )
    _check(start, [len(ids) for ids in options])
    return Span(start, sum(n < len(alone) for n in shared), "ids")


def span_by_texts(context: str, prompts: Sequence[str], texts: Sequence[Sequence[str | None]]) -> Span:
    """The span of a row from token texts, one sequence a prompt.

    Raises BadReply where the texts do not rebuild their prompt, and as `span_by_ids`.
    """
    ends = [_end_in_context(context, prompt, pieces) for prompt, pieces in zip(prompts, texts, strict=True)]
    start = min(tokens for tokens, _ in ends)
    _check(start, [len(pieces) for pieces in texts])
    return Span(start, sum(crossed for _, crossed in ends), "texts")


def _shared(a: Ids, b: Ids) -> int:
    """Length of the common prefix."""
    n = min(len(a), len(b))
    different = np.flatnonzero(a[:n] != b[:n])
    return int(different[0]) if len(different) else n


def _end_in_context(context: str, prompt: str, pieces: Sequence[str | None]) -> tuple[int, bool]:
    """(leading tokens that lie within the context, whether the next one crosses its end).

    An empty piece right behind the context is the beginning of the option's first character.
    """
    if None in pieces or "".join(p for p in pieces if p is not None) != prompt:
        raise BadReply(
            "the token texts do not rebuild the prompt, and the wire gives no ids: the option's span is unknown",
            hint="use a dialect that reports prompt token ids, such as vllm_native",
        )
    length = 0
    for i, piece in enumerate(pieces):
        if length == len(context):
            return i, False
        length += len(piece or "")
        if length > len(context):
            return i, True
    return len(pieces), False


def _check(start: int, lengths: Sequence[int]) -> None:
    if start < 1:
        raise BadReply("no context token stands before the option: nothing conditions its score")
    empty = next((i for i, n in enumerate(lengths) if n <= start), None)
    if empty is not None:
        raise BadReply(f"option {empty} has no token of its own behind the context")
