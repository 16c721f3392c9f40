"""From wire lists to checked columns: the one way in which a logprob becomes a number.

Every value passes `logprobs`: null only where the wire leaves a position unscored, the sentinel -9999.0
(vLLM's clamped minus infinity) becomes -inf, anything non-finite or positive is refused. Dialects then build
`Tokens` and `TopK` with `top_k`, which checks each position's width and its scored token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from logproof.errors import BadReply
from logproof.ir.response import Floats, Ids, TopK

SENTINEL = -9999.0
"""What vLLM reports for a logprob of minus infinity, which JSON cannot hold."""

ROUNDING = 1e-4
"""A log-softmax in float32 may end this far above zero; anything higher is no logprob."""


def logprobs(values: Sequence[float | None], path: str, *, unscored: int = 0, sentinel: bool = True) -> Floats:
    """float64 [n] from a list of numbers. NaN stands for null, allowed only below index `unscored`.

    sentinel: whether -9999.0 means minus infinity on this wire; where it does not, it is refused.
    Raises BadReply naming the element under `path`.
    """
    column = np.array([np.nan if v is None else v for v in values], dtype=np.float64)
    null = np.array([v is None for v in values], dtype=bool)
    check_logprobs(column, path, null, unscored=unscored, sentinel=sentinel)
    if sentinel:
        column[column == SENTINEL] = -np.inf
    return column


def check_logprobs(
    column: Floats, path: str, nulls: NDArray[np.bool_], *, unscored: int = 0, sentinel: bool = True
) -> None:
    """Refuse a column that holds anything but logprobs; see `logprobs`."""
    bad = nulls.copy()
    bad[:unscored] = False
    bad |= ~nulls & ~(np.isfinite(column) & (column <= ROUNDING))
    if not sentinel:
        bad |= column == SENTINEL
    if bad.any():
        at = int(np.argmax(bad))
        what = "null at a scored position" if nulls[at] else f"{column[at]} is no logprob"
        raise BadReply(what, path=f"{path}/{at}")


def ids(values: Sequence[int], path: str) -> Ids:
    """int64 [n] of token ids from a typed list. Raises BadReply for a negative or a huge one."""
    try:
        column = np.array(values, dtype=np.int64)
    except OverflowError:
        raise BadReply("a number that is no token id", path=path) from None
    bad = (column < 0) | (column >= 2**31)
    if bad.any():
        at = int(np.argmax(bad))
        raise BadReply(f"{column[at]} is no token id", path=f"{path}/{at}")
    return column


def same_length(path: str, want: int, got: int, what: str) -> None:
    """Refuse a channel whose length differs from an independent count of the same reply."""
    if want != got:
        raise BadReply(f"{got} entries for {want} {what}", path=path)


def top_k(
    positions: Iterable[tuple[Sequence[int] | None, Sequence[float], Sequence[int] | None, Sequence[str] | None]],
    width: int,
    scored: Sequence[tuple[int | str, float] | None],
    path: str,
) -> TopK:
    """Build a checked TopK from one (ids, logprobs, ranks, texts) a position, each of equal length.

    width: the k that was asked. scored: (id, or text where ids are None; logprob) of each position's own
    token, None at an unscored position, which must then be empty. A position holds k entries with the scored
    token among them, or k + 1; an id twice, another value for the scored token, or any other count is refused.
    """
    flat_ids: list[int] = []
    flat_ranks: list[int] = []
    flat_texts: list[str] = []
    flat: list[float] = []
    offsets = [0]
    for i, ((pos_ids, values, ranks, texts), own) in enumerate(zip(positions, scored, strict=True)):
        where = f"{path}/{i}"
        keys: Sequence[int | str] = pos_ids if pos_ids is not None else (texts or ())
        _check_position(keys, values, own, width, where)
        order = sorted(range(len(values)), key=lambda j: (-values[j], j))
        flat += [values[j] for j in order]
        flat_ids += [pos_ids[j] for j in order] if pos_ids is not None else []
        flat_ranks += [ranks[j] for j in order] if ranks is not None else []
        flat_texts += [texts[j] for j in order] if texts is not None else []
        offsets.append(len(flat))
    count = len(flat)
    return TopK(
        offsets=np.array(offsets, dtype=np.int64),
        logprobs=logprobs(flat, path),
        ids=ids(flat_ids, path) if len(flat_ids) == count else None,
        ranks=np.array(flat_ranks, dtype=np.int64) if len(flat_ranks) == count and count else None,
        texts=tuple(flat_texts) if len(flat_texts) == count else None,
    )


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
