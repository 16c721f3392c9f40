"""From wire lists to checked columns: the one way in which a logprob becomes a number.

Every value passes `logprobs`: null only where the wire leaves a position unscored, the sentinel -9999.0
(vLLM's clamped minus infinity) becomes -inf, anything non-finite or positive is refused. Dialects then build
`Tokens` and `TopK` with `top_k`, which checks each position's width and its scored token.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Iterable, Sequence
from operator import itemgetter
from typing import TypeVar, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from logproof.errors import BadReply, SpoiledTopList
from logproof.ir.response import Floats, Ids, TopK

T = TypeVar("T", np.int64, np.float64)

SENTINEL = -9999.0
"""What vLLM reports for a logprob of minus infinity, which JSON cannot hold."""

ID_LIMIT = 2**31
"""Ids and ranks lie below."""

ROUNDING = 1e-4
"""A log-softmax in float32 may end this far above zero; anything higher is no logprob."""


def floats(values: Sequence[float | None]) -> Floats:
    """float64 [n] from a list of numbers; NaN stands for null."""
    column = np.empty(len(values))
    try:
        struct.pack_into(f"{len(values)}d", column.data, 0, *values)
    except struct.error:
        return np.fromiter(values, np.float64, len(values))
    return column


def integers(values: Sequence[int]) -> Ids:
    """int64 [n] from a list of numbers. Raises OverflowError for a huge one, TypeError for null."""
    column = np.empty(len(values), np.int64)
    try:
        struct.pack_into(f"{len(values)}q", column.data, 0, *values)
    except struct.error:
        return np.fromiter(values, np.int64, len(values))
    return column


def _plain(column: Floats) -> bool:
    """Whether all of it are logprobs of tokens that are possible; the quick answer for nearly every column."""
    return len(column) == 0 or bool(np.minimum.reduce(column) > SENTINEL and np.maximum.reduce(column) <= ROUNDING)


def logprobs(values: Sequence[float | None], path: str, *, unscored: int = 0, sentinel: bool = True) -> Floats:
    """float64 [n] from a list of numbers. NaN stands for null, allowed only below index `unscored`.

    sentinel: whether -9999.0 means minus infinity on this wire; where it does not, it is refused.
    Raises BadReply naming the element under `path`.
    """
    column = floats(values)
    if _plain(column[unscored:]) and not any(v is not None for v in values[:unscored]):
        return column
    absent = np.flatnonzero(np.isnan(column)).tolist()
    at = next((i for i in absent if values[i] is not None), None)
    if at is not None:
        raise BadReply("nan is no logprob", path=f"{path}/{at}")
    return checked(column, path, unscored=unscored, sentinel=sentinel)


def checked(column: Floats, path: str, *, unscored: int = 0, sentinel: bool = True) -> Floats:
    """The column itself, NaN for null, after a check that it holds nothing but logprobs; see `logprobs`."""
    if _plain(column[unscored:]) and np.isnan(column[:unscored]).all():
        return column
    bad = ~((column <= ROUNDING) & (column > -np.inf))
    bad[:unscored] &= ~np.isnan(column[:unscored])
    if not sentinel:
        bad |= column == SENTINEL
    if bad.any():
        at = int(np.argmax(bad))
        what = "null at a scored position" if np.isnan(column[at]) else f"{column[at]} is no logprob"
        raise BadReply(what, path=f"{path}/{at}")
    if sentinel:
        column[column == SENTINEL] = -np.inf
    return column


def ids(values: Sequence[int], path: str) -> Ids:
    """int64 [n] of token ids from a typed list. Raises BadReply for a negative or a huge one."""
    try:
        column = integers(values)
    except OverflowError:
        raise BadReply("a number that is no token id", path=path) from None
    if len(column) and np.maximum.reduce(column.view(np.uint64)) >= ID_LIMIT:
        at = int(np.argmax((column < 0) | (column >= ID_LIMIT)))
        raise BadReply(f"{column[at]} is no token id", path=f"{path}/{at}")
    return column


def same_length(path: str, want: int, got: int, what: str) -> None:
    """Refuse a channel whose length differs from an independent count of the same reply."""
    if want != got:
        raise BadReply(f"{got} entries for {want} {what}", path=path)


class Flat(msgspec.Struct, frozen=True):
    """Top entries of n positions, one after the other, as a wire gave them.

    counts: entries of each position. keys, values: id (text where by_id is false) and logprob of each entry.
    ranks, texts: of each entry, None where they are not known everywhere. unique: no position holds a key twice,
    because they were the keys of one map.
    """

    counts: Ids
    keys: Sequence[int | str]
    values: Floats
    by_id: bool
    ranks: Ids | None = None
    texts: Sequence[str] | None = None
    unique: bool = False


SPOILED_WIDTH = 2
"""Entries of a list that another request spoiled, at most: the sampled token and id 0."""
FULL = 0.99
"""Mass from which a list may be all that can be drawn."""


def check_spoiled(listed: Collection[float], path: str, *, raw: bool = False) -> None:
    """Refuse a list that another request spoiled: vLLM 0.32 lists the sampled token and id 0 at -9999, and nothing
    else, for every request that shares a batch with one for label scores (`logprob_token_ids`).

    An impossible rival says that all possible tokens are listed above it, so their mass is 1. listed: as the wire gave
    them. raw: no mask may make a rival impossible. Raises SpoiledTopList.
    """
    if SENTINEL not in listed:
        return
    if raw or (
        len(listed) <= SPOILED_WIDTH and math.fsum(math.exp(min(v, 0.0)) for v in listed if v != SENTINEL) < FULL
    ):
        raise SpoiledTopList(path)


def top_k(
    positions: Iterable[tuple[Sequence[int] | None, Sequence[float], Sequence[int] | None, Sequence[str] | None]],
    width: int,
    scored: Sequence[tuple[int | str, float] | None],
    path: str,
) -> TopK:
    """Build a checked TopK from one (ids, logprobs, ranks, texts) a position, each of equal length; see `flat_top_k`.

    scored: (id, or text where ids are None; logprob) of each position's own token, None at an unscored position.
    """
    counts: list[int] = []
    keys: list[int | str] = []
    flat: list[float] = []
    by_id = True
    ranks: list[int] = []
    texts: list[str] = []
    for pos_ids, pos_values, pos_ranks, pos_texts in positions:
        counts.append(len(pos_values))
        flat += pos_values
        keys += pos_ids if pos_ids is not None else (pos_texts or ())
        by_id &= pos_ids is not None
        ranks += pos_ranks or ()
        texts += pos_texts or ()
    whole = len(flat)
    entries = Flat(
        integers(counts),
        keys,
        floats(flat),
        by_id=by_id,
        ranks=np.array(ranks, dtype=np.int64) if whole and len(ranks) == whole else None,
        texts=texts if len(texts) == whole else None,
    )
    own = [pair[0] if pair is not None else 0 for pair in scored]
    own_values = floats([pair[1] if pair is not None else None for pair in scored])
    return flat_top_k(entries, width, own, own_values, path)


def flat_top_k(flat: Flat, width: int, own: Sequence[int | str], own_values: Floats, path: str) -> TopK:
    """Build a checked TopK, each position sorted by falling logprob (equal ones in wire order).

    width: the k that was asked. own, own_values: key and logprob, as the wire gave it, of each position's own
    token; a logprob of NaN is an unscored position, which must then be empty. A position holds k entries with the
    scored token among them, or k + 1; an id twice, another value for the scored token, or any other count is
    refused.
    """
    grid = _Grid(flat, own, own_values, path)
    for i in grid.suspects(width, flat.unique):
        span = slice(int(grid.offsets[i]), int(grid.offsets[i + 1]))
        scored = (own[i], float(own_values[i])) if grid.scored[i] else None
        _check_position(flat.keys[span], flat.values[span].tolist(), scored, width, f"{path}/{i}")
    order = grid.order()
    return TopK(
        offsets=grid.offsets,
        logprobs=checked(grid.values[order], path),
        ids=grid.keys[order] if flat.by_id else None,
        ranks=flat.ranks[order] if flat.ranks is not None else None,
        texts=_picked(flat.texts, order) if flat.texts is not None else None,
    )


def _picked(texts: Sequence[str], order: Ids) -> tuple[str, ...]:
    """The texts in an order of all of them."""
    return itemgetter(*order.tolist())(texts) if len(texts) > 1 else tuple(texts)


class _Grid:
    """Flat entries as arrays, and as one row a position: of one width where all hold equally many, else filled up.

    Finds in whole columns which positions `_check_position` must look at; it decides.
    """

    def __init__(self, flat: Flat, own: Sequence[int | str], own_values: Floats, path: str) -> None:
        whole = len(flat.keys) == len(flat.values) == np.add.reduce(flat.counts)
        if not whole or not len(flat.counts) == len(own) == len(own_values):
            raise ValueError("the lists of a top channel differ in length")
        self.counts = flat.counts
        self.values = flat.values
        self.offsets = np.concatenate(([0], np.cumsum(flat.counts)))
        self.scored = ~np.isnan(own_values)
        self.keys, self.own = _codes(flat, own, path)
        self.own_values = own_values
        most = int(np.maximum.reduce(flat.counts, initial=0))
        self._even = most > 0 and len(flat.values) == most * len(flat.counts)
        self._inside: NDArray[np.bool_] | None = None

    def suspects(self, width: int, unique: bool) -> list[int]:
        """Positions that may not be whole, in order."""
        fits = (self.counts == max(width, 1)) | (self.counts == width + 1)
        bad = np.where(self.scored, ~fits, self.counts > 0)
        if not bad.any():
            bad = self.scored & ~self._whole(width)
            if not unique:
                bad |= self._twice()
        found: list[int] = np.flatnonzero(bad).tolist()
        return found

    def order(self) -> Ids:
        """Indexes of the flat entries, position by position, by falling value."""
        values = self._rows(self.values, -np.inf)
        rows: Ids = np.argsort(-values, axis=1, kind="stable") + self.offsets[:-1, None]
        return rows.ravel() if self._even else rows[self._cells()]

    def _whole(self, width: int) -> NDArray[np.bool_]:
        """Whether a position holds its own token with its own value, and as its last where it stands beside k."""
        values = self._rows(self.values, np.inf)
        own = (self._rows(self.keys, -1) == self.own[:, None]) & (values == self.own_values[:, None])
        whole: NDArray[np.bool_] = own.any(axis=1)
        beside = self.counts > max(width, 1)
        if beside.any():
            whole &= ~(beside & (self.own_values > values.min(axis=1, initial=np.inf)))
        return whole

    def _twice(self) -> NDArray[np.bool_]:
        keys = self._rows(self.keys, 0)
        keys = np.sort(np.where(self._cells(), keys, -1 - np.arange(keys.shape[1])), axis=1)
        twice: NDArray[np.bool_] = (keys[:, 1:] == keys[:, :-1]).any(axis=1)
        return twice

    def _cells(self) -> NDArray[np.bool_]:
        """Which cells of a row a position hold an entry; rows are as wide as the longest position."""
        if self._inside is None:
            self._inside = np.arange(self.counts.max(initial=0)) < self.counts[:, None]
        return self._inside

    def _rows(self, column: NDArray[T], fill: float) -> NDArray[T]:
        """The column with one row a position."""
        if self._even:
            return column.reshape(len(self.counts), -1)
        inside = self._cells()
        rows = np.full(inside.shape, fill, dtype=column.dtype)
        rows[inside] = column
        return rows


def _codes(flat: Flat, own: Sequence[int | str], path: str) -> tuple[Ids, Ids]:
    """The entries' keys and the scored tokens' as numbers: ids as they are, texts counted as they come."""
    if flat.by_id:
        return ids(cast("Sequence[int]", flat.keys), path), ids(cast("Sequence[int]", own), path)
    known: dict[int | str, int] = {}
    keys = [known.setdefault(key, len(known)) for key in flat.keys]
    return np.array(keys, dtype=np.int64), np.array([known.get(key, -1) for key in own], dtype=np.int64)


def _check_position(
    keys: Sequence[int | str], values: Sequence[float], own: tuple[int | str, float] | None, width: int, where: str
) -> None:
    if own is None:
        if keys:
            raise BadReply("entries at an unscored position", path=where)
        return
    if len(set(keys)) != len(keys):
        raise BadReply("one token listed twice", path=where)
    token, value = own
    found = dict(zip(keys, values, strict=True))
    if token not in found:
        raise BadReply(f"the scored token {token!r} is not among the entries", path=where)
    if found[token] != value:
        raise BadReply(f"two values for the scored token {token!r}: {value} and {found[token]}", path=where)
    check_width(len(keys), width, values, value, where)


def check_width(count: int, width: int, values: Sequence[float], own: float, where: str) -> None:
    """A position holds `width` entries, or one more: the scored token beside a full top-k.

    With width + 1 entries none of the others may lie below the scored token. A width of 0 leaves the token.
    """
    if count == max(width, 1) or (count == width + 1 and own <= min(values)):
        return
    if count == width + 1:
        raise BadReply(f"{count} entries for a top {width}, yet the scored token is not the last", path=where)
    raise BadReply(f"{count} entries for a top {width}", path=where)
