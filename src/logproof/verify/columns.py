"""Columns: the distributions recorded at n positions, as arrays; what every statistic reads.

A row is a set of (token id, logprob) entries and, apart from it, the token that was sampled there with its
logprob. A row lists the best tokens, but a wire may have put the sampled token in place of the last of them,
so nothing may be concluded from the sampled token's presence about tokens that are not listed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

NO_ID = -1
"""Fills rows that hold fewer entries than the widest; its logprob is -inf. It never enters a sum."""


class Columns(msgspec.Struct, frozen=True, eq=False, dict=True):
    """n positions of at most w entries.

    sampled_ids: int64 [n]. sampled_logprobs: float64 [n] in nats, NaN where unreported.
    ids: int64 [n, w], NO_ID where a row has no entry. logprobs: float64 [n, w] in nats, -inf there.
    Entries of a row are sorted by falling logprob, then rising id; ids of a row are distinct.
    """

    sampled_ids: Ids
    sampled_logprobs: Floats
    ids: Ids
    logprobs: Floats

    def __len__(self) -> int:
        return len(self.sampled_ids)

    @property
    def width(self) -> int:
        """w, the widest row."""
        return int(self.ids.shape[1])

    @property
    def present(self) -> Mask:
        """bool [n, w]: which cells hold an entry."""
        return np.not_equal(self.ids, NO_ID)

    @cached_property
    def entries(self) -> tuple[Ids, Floats]:
        """ids [n, w + 1] and logprobs [n, w + 1]: the rows, and the sampled token last where it is apart.

        The last cell is NO_ID / -inf where the sampled token is listed already or its logprob is unreported.
        """
        there = self.listed | np.isnan(self.sampled_logprobs)
        extra_id = np.where(there, NO_ID, self.sampled_ids)
        extra = np.where(there, -np.inf, self.sampled_logprobs)
        return (
            np.concatenate((self.ids, extra_id[:, None]), axis=1),
            np.concatenate((self.logprobs, extra[:, None]), axis=1),
        )

    @cached_property
    def listed(self) -> Mask:
        """bool [n]: the row lists the sampled token."""
        return np.asarray((self.ids == self.sampled_ids[:, None]).any(axis=1), np.bool_)

    @cached_property
    def mass(self) -> Floats:
        """Summed probability of all known tokens, float64 [n]; a little above 1 by rounding at times."""
        return np.asarray(np.exp(self.entries[1]).sum(axis=1), np.float64)

    @cached_property
    def least(self) -> Floats:
        """The least listed logprob other than the sampled token's, float64 [n], infinity where there is none."""
        others = (self.ids != NO_ID) & (self.ids != self.sampled_ids[:, None])
        return np.asarray(np.where(others, self.logprobs, np.inf).min(axis=1, initial=np.inf), np.float64)

    def head(self, n: int) -> Columns:
        """The first n positions."""
        return Columns(self.sampled_ids[:n], self.sampled_logprobs[:n], self.ids[:n], self.logprobs[:n])

    def narrow(self, k: int) -> Columns:
        """The k best entries of each row; the sampled token stays known apart."""
        return Columns(self.sampled_ids, self.sampled_logprobs, self.ids[:, :k], self.logprobs[:, :k])


def make(
    sampled_ids: Sequence[int] | Ids,
    sampled_logprobs: Sequence[float | None] | Floats,
    ids: Sequence[Sequence[int]],
    logprobs: Sequence[Sequence[float]],
) -> Columns:
    """Columns from ragged rows. None and -inf sampled logprobs become NaN; -inf entries are left out.

    Raises ValueError where lengths differ.
    """
    n = len(sampled_ids)
    if not (n == len(sampled_logprobs) == len(ids) == len(logprobs)):
        raise ValueError(f"{n} sampled ids, {len(sampled_logprobs)} logprobs, {len(ids)} and {len(logprobs)} rows")
    drawn = np.array([np.nan if v is None else v for v in sampled_logprobs], np.float64)
    drawn[np.isneginf(drawn)] = np.nan
    return sort_rows(np.asarray(sampled_ids, np.int64), drawn, pad(ids, NO_ID), pad(logprobs, -np.inf))


def from_maps(sampled_ids: Sequence[int], rows: Sequence[Mapping[int, float]]) -> Columns:
    """Columns from one {id: logprob} map a position; the sampled logprob is read from the map, NaN if absent."""
    drawn = [row.get(t) for t, row in zip(sampled_ids, rows, strict=True)]
    return make(sampled_ids, drawn, [list(r) for r in rows], [list(r.values()) for r in rows])


def pad(rows: Sequence[Sequence[float]], fill: float) -> NDArray[np.float64]:
    """Ragged rows as one float64 array [n, w], filled at the right. Ids below 2**53 stay exact."""
    width = max((len(r) for r in rows), default=0)
    if all(len(r) == width for r in rows):
        return np.asarray(rows, np.float64).reshape(len(rows), width)
    out = np.full((len(rows), width), fill, np.float64)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out


def sort_rows(sampled_ids: Ids, sampled_logprobs: Floats, ids: NDArray[np.float64], logprobs: Floats) -> Columns:
    """Columns with entries in their order; entries of logprob -inf are dropped (an impossible token).

    A sampled logprob that was not reported is read from its row, where the row lists the token. Zeros are positive.
    """
    if ids.shape != logprobs.shape:
        raise ValueError(f"ids of shape {ids.shape} and logprobs of shape {logprobs.shape}")
    ids = np.where(np.isneginf(logprobs), NO_ID, ids)
    order = np.lexsort((ids, -logprobs), axis=1)
    table, values = np.take_along_axis(ids, order, 1).astype(np.int64), np.take_along_axis(logprobs, order, 1)
    listed = np.where(table == sampled_ids[:, None], values, -np.inf).max(axis=1, initial=-np.inf)
    silent = np.isnan(sampled_logprobs) & np.isfinite(listed)
    return Columns(sampled_ids, np.where(silent, listed, sampled_logprobs) + 0.0, table, values + 0.0)


def matches(left: Ids, right: Ids) -> tuple[Ids, Ids, Ids]:
    """Equal ids of the same row: (row, column of left, column of right), each int64 [q]. NO_ID matches nothing.

    left: int64 [n, a], right: int64 [n, b], ids of a row distinct.
    """
    equal = left.astype(np.int32)[:, :, None] == np.where(right == NO_ID, NO_ID - 1, right).astype(np.int32)[:, None, :]
    flat = np.flatnonzero(equal)
    pair = left.shape[1] * right.shape[1]
    inside = flat % pair if pair else flat
    return flat // max(pair, 1), inside // max(right.shape[1], 1), inside % max(right.shape[1], 1)


def lookup(columns: Columns, ids: Ids) -> Floats:
    """Logprobs of the given ids at each position. ids: int64 [n, m] -> float64 [n, m], NaN where not listed.

    The sampled token counts as listed when its logprob was reported.
    """
    own_ids, own = columns.entries
    row, here, there = matches(ids, own_ids)
    out = np.full(ids.shape, np.nan)
    out[row, here] = own[row, there]
    return out


def floor(columns: Columns) -> Floats:
    """Upper bound of the logprob of any token that a row does not list, float64 [n], in nats.

    The least listed logprob other than the sampled token's (which a wire may put in place of the last entry),
    and never more than the log of the mass that the listed tokens leave over. Sound for any row of best tokens.
    """
    return np.asarray(np.minimum(np.minimum(columns.least, 0.0), log_rest(columns)), np.float64)


REST_SLACK = 1e-3
"""Mass granted to unlisted tokens beyond what the listed leave over: sums of rounded logprobs miss by up to it."""


def log_rest(columns: Columns, slack: float = REST_SLACK) -> Floats:
    """Log of an upper bound of the mass that a row does not list, float64 [n]. slack: error of the listed mass, > 0."""
    return np.asarray(np.log(np.maximum(1.0 - columns.mass, 0.0) + slack), np.float64)
