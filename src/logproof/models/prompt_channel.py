"""vLLM's prompt channel: one map of id -> entry a prompt position, as its completions and chat routes give it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
