"""vLLM's prompt channel: one map of id -> entry a prompt position, as its completions and chat routes give it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from logproof.errors import BadReply, MissingChannel
from logproof.ir.response import Tokens, TopK
from logproof.models import columns
from logproof.models.completions import Entry, first_text

Positions = Sequence[Mapping[int, Entry] | None]


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
    columns.same_length(path, len(raw_ids), len(entries), "prompt token ids")
    ids = columns.ids(raw_ids, f"{at}/prompt_token_ids")
    own = _own_entries(entries, raw_ids, path)
    for i, position in enumerate(entries):
        _check_ranks(position or {}, f"{path}/{i}")
        if width == 0 and position is not None and len(position) != 1:
            raise BadReply(f"{len(position)} entries where one was asked", path=f"{path}/{i}")
    texts = [e.decoded_token for e in own]
    return Tokens(
        logprobs=columns.logprobs([None, *(e.logprob for e in own)], path, unscored=1),
        meaning="raw",
        ids=ids,
        ranks=np.array([0, *(e.rank or 0 for e in own)], dtype=np.int64),
        texts=(first_text(text, texts), *texts),
        top=_prompt_top(entries, raw_ids, own, width, path) if width else None,
    )


def _own_entries(entries: Positions, raw_ids: Sequence[int], path: str) -> list[Entry]:
    """The scored token's entry at each position after the first."""
    if not entries or entries[0] is not None:
        raise BadReply("the first prompt token has nothing before it, yet it is scored", path=f"{path}/0")
    own = []
    for i, (position, token) in enumerate(zip(entries[1:], raw_ids[1:], strict=True), start=1):
        entry = position.get(token) if position else None
        if entry is None:
            raise BadReply(f"the prompt's token {token} is not among the entries", path=f"{path}/{i}")
        own.append(entry)
    return own


def _check_ranks(position: Mapping[int, Entry], where: str) -> None:
    """A second witness of each logprob: a better rank for a higher value, and at rank r no value above -ln(r).

    r tokens are at least as likely as the one of rank r, and together at most certain; so rank 1 cannot be
    impossible either.
    """
    ranked = sorted((e.rank, -e.logprob) for e in position.values() if e.rank is not None)
    for rank, surprise in ranked:
        if rank < 1 or surprise < math.log(rank) - columns.ROUNDING or (rank == 1 and surprise == -columns.SENTINEL):
            raise BadReply(f"rank {rank} does not go with logprob {-surprise}", path=where)
    if any(after < before for (_, before), (_, after) in pairwise(ranked)):
        raise BadReply("ranks and logprobs are in different orders", path=where)


def _prompt_top(entries: Positions, raw_ids: Sequence[int], own: Sequence[Entry], width: int, path: str) -> TopK:
    scored = [None, *((token, e.logprob) for token, e in zip(raw_ids[1:], own, strict=True))]
    return columns.top_k((_flat(position or {}) for position in entries), width, scored, path)


def _flat(position: Mapping[int, Entry]) -> tuple[list[int], list[float], list[int], list[str] | None]:
    texts = [e.decoded_token for e in position.values()]
    whole = [t for t in texts if t is not None]
    return (
        list(position),
        [e.logprob for e in position.values()],
        [e.rank or 0 for e in position.values()],
        whole if len(whole) == len(texts) else None,
    )
