"""vLLM's prompt channel: one map of id -> entry a prompt position, as its completions and chat routes give it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from operator import getitem
from typing import cast

import msgspec
import numpy as np

from logproof.dialects.common import logprobs
from logproof.dialects.common.joined_texts import first_text
from logproof.errors import BadReply, MissingChannel
from logproof.ir.response import Floats, Ids, Tokens, TopK


class PromptEntry(msgspec.Struct, gc=False):
    """One token at one prompt position."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


Position = Mapping[int, PromptEntry]
Positions = Sequence[Position | None]


def lift_prompt(
    entries: Positions | None, raw_ids: Sequence[int] | None, width: int, text: str | None, at: str
) -> Tokens:
    """The prompt channel from vLLM's `prompt_logprobs` and `prompt_token_ids`, both found at JSON pointer `at`.

    text: the prompt as it was sent, None where it is not known. Raises MissingChannel where one of the two is
    absent, BadReply where they differ in length, a position lacks its own token, or holds another count than
    width or width + 1.
    """
    path = f"{at}/prompt_logprobs"
    if entries is None:
        raise MissingChannel("prompt logprobs were asked and are absent", path=path)
    if raw_ids is None:
        raise MissingChannel("prompt_token_ids are absent: nothing names the scored tokens", path=path)
    logprobs.same_length(path, len(raw_ids), len(entries), "prompt token ids")
    ids = logprobs.ids(raw_ids, f"{at}/prompt_token_ids")
    found = _scored(entries, raw_ids, path)
    if width == 0 and found.flat is not found.own:
        i = next(i for i, position in enumerate(found.positions) if len(position) != 1)
        raise BadReply(f"{len(found.positions[i])} entries where one was asked", path=f"{path}/{i + 1}")
    own_values = logprobs.floats([math.nan, *[e.logprob for e in found.own]])
    alone = found.flat is found.own
    values = own_values[1:].copy() if alone else logprobs.floats([e.logprob for e in found.flat])
    ranks = _ranks(found, values, path)
    texts = [e.decoded_token for e in found.own]
    top = _top(found, values, ranks, raw_ids, own_values, width, path) if width else None
    return Tokens(
        logprobs=logprobs.checked(own_values, path, unscored=1),
        meaning="raw",
        ids=ids,
        ranks=np.concatenate(([0], ranks if alone else [e.rank or 0 for e in found.own])),
        texts=(first_text(text, texts), *texts),
        top=top,
    )


class _Scored(msgspec.Struct, frozen=True, gc=False):
    """The positions after the first, their own tokens' entries, and all entries one after the other.

    flat is own itself where every position holds its own token alone.
    """

    positions: list[Position]
    own: list[PromptEntry]
    flat: list[PromptEntry]


def _scored(entries: Positions, raw_ids: Sequence[int], path: str) -> _Scored:
    if not entries or entries[0] is not None:
        raise BadReply("the first prompt token has nothing before it, yet it is scored", path=f"{path}/0")
    positions = cast("list[Position]", entries[1:])
    tokens = raw_ids[1:]
    try:
        own: list[PromptEntry] = list(map(getitem, positions, tokens))
    except (KeyError, TypeError):
        paired = enumerate(zip(entries[1:], tokens, strict=True), start=1)
        i, token = next((i, token) for i, (position, token) in paired if token not in (position or {}))
        raise BadReply(f"the prompt's token {token} is not among the entries", path=f"{path}/{i}") from None
    alone = sum(map(len, positions)) == len(own)
    return _Scored(positions, own, own if alone else list(chain.from_iterable([p.values() for p in positions])))


def _ranks(found: _Scored, values: Floats, path: str) -> Ids:
    """Ranks of the entries, 0 where unreported, after a check of each position that may hold a wrong one."""
    try:
        ranks = logprobs.integers(cast("list[int]", [e.rank for e in found.flat]))
    except TypeError:
        ranks = np.array([e.rank or 0 for e in found.flat], dtype=np.int64)
    except OverflowError:
        raise BadReply("a number that is no rank", path=path) from None
    plain = len(ranks) > 0 and np.minimum.reduce(ranks) >= 1 and np.minimum.reduce(values) > logprobs.SENTINEL
    if plain and np.maximum.reduce(values + np.log(ranks)) <= logprobs.ROUNDING:
        return ranks
    sure = (ranks >= 1) & (values <= logprobs.ROUNDING - np.log(np.maximum(ranks, 1)))
    sure &= (ranks > 1) | (values != logprobs.SENTINEL)
    _check_doubtful(found, np.flatnonzero(~sure), path)
    return ranks


def _check_doubtful(found: _Scored, entries: Ids, path: str) -> None:
    """Look closely at the positions that hold these flat entries."""
    if len(entries) == 0:
        return
    ends = np.cumsum([len(position) for position in found.positions])
    for i in np.unique(np.searchsorted(ends, entries, side="right")).tolist():
        _check_ranks(found.positions[i], f"{path}/{i + 1}")


def _top(
    found: _Scored, values: Floats, ranks: Ids, tokens: Sequence[int], own_values: Floats, width: int, path: str
) -> TopK:
    """The top channel. Where ranks fall while logprobs fall too, the position is looked at closely."""
    texts = [e.decoded_token for e in found.flat]
    entries = logprobs.Flat(
        counts=logprobs.integers([0, *map(len, found.positions)]),
        keys=list(chain.from_iterable(found.positions)),
        values=values,
        by_id=True,
        ranks=ranks,
        texts=cast("list[str]", texts) if not [t for t in texts if t is None] else None,
        unique=True,
    )
    top = logprobs.flat_top_k(entries, width, tokens, own_values, path)
    if top.ranks is not None:
        falls = np.diff(top.ranks, prepend=0) < 0
        falls[top.offsets[top.offsets < len(falls)]] = False
        _check_doubtful(found, np.flatnonzero(falls), path)
    return top


def _check_ranks(position: Position, where: str) -> None:
    """A second witness of each logprob: a better rank for a higher value, and at rank r no value above -ln(r).

    r tokens are at least as likely as the one of rank r, and together at most certain; so rank 1 cannot be
    impossible either.
    """
    ranked = sorted((e.rank, -e.logprob) for e in position.values() if e.rank is not None)
    for rank, surprise in ranked:
        if rank < 1 or surprise < math.log(rank) - logprobs.ROUNDING or (rank == 1 and surprise == -logprobs.SENTINEL):
            raise BadReply(f"rank {rank} does not go with logprob {-surprise}", path=where)
    if any(after < before for (_, before), (_, after) in pairwise(ranked)):
        raise BadReply("ranks and logprobs are in different orders", path=where)
