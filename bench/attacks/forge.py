"""Dishonest records that need no engine of their own: made from honest ones and from replays. Pure.

Every forger is careful: rows stay sorted, a listed token keeps its listed logprob, counts fit, seals are right. What is
left to see is the lie itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from arrays import EOS, TOP_K, VOCABULARY, K, Record

from logproof.verify.artifact.columns import Columns, Ids
from logproof.verify.stats import redraw
from logproof.verify.stats.sampler import Sampler
from logproof.verify.stats.sampler_profiles import profile

EDIT_EVERY = 16
"""Of so many tokens one is edited."""


def scored_honestly(record: Record) -> Record:
    """Pre-fill: another model wrote the tokens, the right model's logprobs of them are recorded."""
    return msgspec.structs.replace(record, own=record.replay.narrow(K))


def edited_ids(own: Columns) -> Ids:
    """The completion with one token in EDIT_EVERY replaced by the best other token of its row."""
    ids = own.sampled_ids.copy()
    for at in range(EDIT_EVERY // 2, len(ids), EDIT_EVERY):
        ids[at] = next(t for t in own.ids[at].tolist() if t != ids[at])
    return ids


def with_tokens(own: Columns, ids: Ids) -> Columns:
    """The rows kept, other tokens claimed; each must be listed in its row or be the row's own."""
    same = own.ids == ids[:, None]
    drawn = np.where(same.any(axis=1), np.where(same, own.logprobs, -np.inf).max(axis=1), own.sampled_logprobs)
    return Columns(ids, drawn, own.ids, own.logprobs)


def copied(record: Record, other: Record) -> Record:
    """The tokens of one record with the logprobs of another.

    A token that a copied row lists keeps that row's value; of others the copied token's value is claimed, or less where
    the row would have listed a token so likely.
    """
    n = min(len(record.own), len(other.own))
    ids, rows = record.own.sampled_ids[:n], other.own.head(n)
    listed = rows.ids == ids[:, None]
    value = np.where(listed, rows.logprobs, -np.inf).max(axis=1)
    least = np.minimum(rows.sampled_logprobs, rows.logprobs.min(axis=1))
    drawn = np.where(listed.any(axis=1), value, least)
    return msgspec.structs.replace(
        record, own=Columns(ids, drawn, rows.ids, rows.logprobs), replay=record.replay.head(n)
    )


def best_of(tries: Sequence[Record], n: int) -> Record:
    """Seed grinding: of several tries with other seeds, that whose first n tokens contradict their seed least."""
    return min(tries, key=lambda r: mismatches(r.head(n)))


def mismatches(record: Record) -> int:
    """Tokens that the record's own logprobs and seed do not give."""
    draw = _redraw(record)
    return int((draw.mismatch & draw.known).sum())


def lengthened(record: Record) -> bool:
    """Whether end of text would have been drawn: the first token that the seed does not give stands in its place."""
    draw = _redraw(record)
    at = redraw.first_violation(draw)
    return at is not None and int(draw.rivals[at]) == EOS


def _redraw(record: Record) -> redraw.Redraw:
    how, length = profile("v1-cpu-splitmix"), len(record.prompt)
    return redraw.redraw(record.own, Sampler(1.0, TOP_K), how, record.seed, length, vocab_size=VOCABULARY)
