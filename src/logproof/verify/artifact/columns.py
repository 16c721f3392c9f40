"""Columns: the distributions recorded at n positions, as arrays; what every statistic reads.

A row is a set of (token id, logprob) entries and, apart from it, the token that was sampled there with its
logprob. A row lists the best tokens, but a wire may have put the sampled token in place of the last of them,
so nothing may be concluded from the sampled token's presence about tokens that are not listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from logproof.errors import BadReply
from logproof.ir.response import Tokens

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
    def place(self) -> Ids:
        """int64 [n]: column of the row that lists the sampled token, -1 where none does."""
        same = self.ids == self.sampled_ids[:, None]
        if not self.width:
            return np.full(len(self), -1)
        column = same.argmax(axis=1)
        return np.where(same[np.arange(len(self)), column], column, -1)

    @property
    def listed(self) -> Mask:
        """bool [n]: the row lists the sampled token."""
        return np.asarray(self.place >= 0, np.bool_)

    @cached_property
    def entries(self) -> tuple[Ids, Floats]:
        """ids [n, w + 1] and logprobs [n, w + 1]: the rows, and the sampled token last where it is apart.

        The last cell is NO_ID / -inf where the sampled token is listed already or its logprob is unreported.
        """
        apart = (self.place < 0) & ~np.isnan(self.sampled_logprobs)
        extra_id = np.where(apart, self.sampled_ids, NO_ID)
        extra = np.where(apart, self.sampled_logprobs, -np.inf)
        return (
            np.concatenate((self.ids, extra_id[:, None]), axis=1),
            np.concatenate((self.logprobs, extra[:, None]), axis=1),
        )

    @cached_property
    def sampled_cell(self) -> Ids:
        """int64 [n]: column of `entries` that holds the sampled token, -1 where its logprob is unknown."""
        apart = np.where(np.isnan(self.sampled_logprobs), -1, self.width)
        return np.where(self.place >= 0, self.place, apart)

    @cached_property
    def probabilities(self) -> Floats:
        """exp of the logprobs of `entries`, float64 [n, w + 1], 0 in empty cells."""
        return np.asarray(np.exp(self.entries[1]), np.float64)

    @cached_property
    def mass(self) -> Floats:
        """Summed probability of all known tokens, float64 [n]; a little above 1 by rounding at times."""
        return row_sums(self.probabilities)

    @cached_property
    def counts(self) -> Ids:
        """int64 [n]: how many entries each row has; they stand first."""
        if self.width and bool((self.ids[:, -1] != NO_ID).all()):
            return np.full(len(self), self.width)
        return np.asarray(self.present.sum(axis=1), np.int64)

    @cached_property
    def least(self) -> Floats:
        """The least listed logprob other than the sampled token's, float64 [n], infinity where there is none."""
        last = self.counts - 1
        last = last - (self.listed & (self.place == last))
        values = self.entries[1][np.arange(len(self)), last]
        return np.where(last >= 0, values, np.inf)

    @cached_property
    def floor(self) -> Floats:
        """Upper bound of the logprob of any token that a row does not list, float64 [n], in nats.

        The least listed logprob other than the sampled token's (which a wire may put in place of the last entry), and
        never more than the log of the mass that the listed tokens leave over. Sound for any row of best tokens.
        """
        return np.asarray(np.minimum(np.minimum(self.least, 0.0), np.log(rest(self))), np.float64)

    def head(self, n: int) -> Columns:
        """The first n positions."""
        return Columns(self.sampled_ids[:n], self.sampled_logprobs[:n], self.ids[:n], self.logprobs[:n])

    def narrow(self, k: int) -> Columns:
        """The k best entries of each row; the sampled token stays known apart."""
        return Columns(self.sampled_ids, self.sampled_logprobs, self.ids[:, :k], self.logprobs[:, :k])


def make_columns(
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


def to_fixed(columns: Columns, denominator: int = 1024) -> Columns:
    """Logprobs rounded to the nearest 1/denominator nat, rows in order again."""
    drawn, entries = (np.round(v * denominator) / denominator for v in (columns.sampled_logprobs, columns.logprobs))
    return sort_rows(columns.sampled_ids, drawn, columns.ids.astype(np.float64), entries)


def to_float32(columns: Columns) -> Columns:
    """Logprobs rounded to float32 values (still stored as float64), rows in order again."""
    drawn, entries = (v.astype(np.float32).astype(np.float64) for v in (columns.sampled_logprobs, columns.logprobs))
    return sort_rows(columns.sampled_ids, drawn, columns.ids.astype(np.float64), entries)


class Matches(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Cells of two tables [n, a] and [n, b] that hold the same id in the same row.

    rows: int64 [q], rising. columns: int64 [q] each, in left and in right. widths: a, b.
    """

    rows: Ids
    columns: tuple[Ids, Ids]
    widths: tuple[int, int]

    @cached_property
    def left(self) -> Ids:
        """Flat indexes in left, int64 [q]."""
        return self.rows * self.widths[0] + self.columns[0]

    @cached_property
    def right(self) -> Ids:
        """Flat indexes in right, int64 [q]."""
        return self.rows * self.widths[1] + self.columns[1]

    def within(self, a: int, b: int) -> Matches:
        """Those in the first a columns of left and the first b of right, as cells of tables cut to these."""
        inside = (self.columns[0] < a) & (self.columns[1] < b)
        if inside.all():
            return Matches(self.rows, self.columns, (a, b))
        kept = np.flatnonzero(inside)
        return Matches(self.rows.take(kept), (self.columns[0].take(kept), self.columns[1].take(kept)), (a, b))


def matches(left: Ids, right: Ids) -> Matches:
    """Equal ids of the same row. NO_ID matches nothing.

    left: int64 [n, a], right: int64 [n, b], ids of a row distinct and below 2**47. Both sides of a row are sorted
    together, each id with its column in the low bits, so that equal ids become neighbours.
    """
    (n, a), b = left.shape, right.shape[1]
    bits = (a + b).bit_length()
    top = max(int(left.max(initial=0)), int(right.max(initial=0)))
    keys = np.empty((n, a + b), np.int32 if top < 1 << (31 - bits) else np.int64)
    keys[:, :a], keys[:, a:] = left, right
    keys <<= bits
    keys |= np.arange(a + b, dtype=keys.dtype)
    keys.sort(axis=1)
    flat, low = keys.ravel(), (1 << bits) - 1
    equal = (flat[1:] ^ flat[:-1]) <= low
    equal &= flat[:-1] >= 0
    equal[a + b - 1 :: a + b] = False  # the last of a row and the first of the next
    at = np.flatnonzero(equal)
    columns = flat.take(at) & low, (flat.take(at + 1) & low) - a
    return Matches(at // max(a + b, 1), columns, (a, b))


def true_cells(mask: Mask) -> tuple[Ids, Ids]:
    """Rows and flat indexes of the true cells of a table [n, m]."""
    flat = np.flatnonzero(mask)
    return flat // max(mask.shape[1], 1), flat


def row_sums(table: Floats) -> Floats:
    """Sum of each row, float64 [n]: as a product with ones, which is several times faster than a sum of short rows."""
    return np.asarray(table @ np.ones(table.shape[1]), np.float64)


REST_SLACK = 1e-3
"""Mass granted to unlisted tokens beyond what the listed leave over: sums of rounded logprobs miss by up to it."""


def rest(columns: Columns, slack: float = REST_SLACK) -> Floats:
    """Upper bound of the mass that a row does not list, float64 [n]. slack: error of the listed mass, > 0."""
    return np.asarray(np.maximum(1.0 - columns.mass, 0.0) + slack, np.float64)


FILLER = -9000.0
"""Logprobs at or below it are an engine's stand-in for "impossible" and are left out."""


def columns_of(tokens: Tokens, start: int = 0) -> Columns:
    """Columns of a scored channel from position `start` on. Raises BadReply where it is not keyed by id."""
    if tokens.ids is None:
        raise BadReply("tokens came without ids")
    n, top = len(tokens) - start, tokens.top
    drawn = np.where(tokens.logprobs[start:] <= FILLER, -np.inf, tokens.logprobs[start:])
    if top is None:
        return make_columns(tokens.ids[start:], drawn, [[]] * n, [[]] * n)
    if top.ids is None:
        raise BadReply("rivals came without ids")
    spans = [top.span(i) for i in range(start, len(tokens))]
    kept = np.where(top.logprobs <= FILLER, -np.inf, top.logprobs)
    return make_columns(
        tokens.ids[start:], drawn, [top.ids[s].tolist() for s in spans], [kept[s].tolist() for s in spans]
    )
