"""Columns as few bytes: the packed twin of an artifact's positions.

Layout: magic, CRC-32 of the rest, one header (struct), then one zlib stream of byte planes. Ids are split by column
(all best ids, all second ids, ...) and by byte, logprobs are steps from one entry to the next below it, so that equal
things lie together. The sampled token is an index into its row, or stands apart.
Measured on SmolLM2-135M, k = 5: 16.7 bytes a position in fixed steps of 1/1024, 27 in float32; k = 20: 51 and 73.
Packing is exact: what the format cannot hold is refused, not rounded (`to_fixed` rounds, on purpose, before).
"""

from __future__ import annotations

import struct
import zlib

import msgspec
import numpy as np
from numpy.typing import NDArray

from logproof.errors import ArtifactError
from logproof.verify.artifact.columns import NO_ID, Columns, Floats, sort_rows

MAGIC = b"LPCOL\x01"
_HEADER = struct.Struct("<IHIQ")
_CHECK = struct.Struct("<I")
MAX_POSITIONS = 1_000_000
MAX_WIDTH = 1024
MAX_PLAIN = 512 * 1024 * 1024
"""Largest unpacked stream in bytes."""

_APART = 0xFFFF
_FLOAT = 0
_NO_ENTRY = np.uint32(0xFFFFFFFF)


def to_fixed(columns: Columns, denominator: int = 1024) -> Columns:
    """Logprobs rounded to the nearest 1/denominator nat, rows in order again."""
    drawn, entries = (np.round(v * denominator) / denominator for v in (columns.sampled_logprobs, columns.logprobs))
    return sort_rows(columns.sampled_ids, drawn, columns.ids.astype(np.float64), entries)


def to_float32(columns: Columns) -> Columns:
    """Logprobs rounded to float32 values (still stored as float64), rows in order again."""
    drawn, entries = (v.astype(np.float32).astype(np.float64) for v in (columns.sampled_logprobs, columns.logprobs))
    return sort_rows(columns.sampled_ids, drawn, columns.ids.astype(np.float64), entries)


def pack(columns: Columns, denominator: int | None = None) -> bytes:
    """The columns as bytes. denominator: steps a nat of fixed format, None for float32.

    Raises ArtifactError: a logprob that the format cannot hold exactly, ids outside 0..2**32-2, too large.
    """
    n, w = len(columns), columns.width
    if n > MAX_POSITIONS or w > MAX_WIDTH:
        raise ArtifactError(f"{n} positions of {w} entries; the limits are {MAX_POSITIONS} and {MAX_WIDTH}")
    where, apart_ids, apart_values = _sampled(columns)
    planes = [
        where.astype("<u2").view(np.uint8).reshape(-1, 2).T.tobytes(),
        _ids_bytes(apart_ids),
        _codes(apart_values, denominator).astype("<u4").tobytes(),
        _planes(_ids32(columns.ids)),
        _planes(_steps(_codes(columns.logprobs, denominator), denominator)),
    ]
    plain = b"".join(planes)
    body = _HEADER.pack(n, w, denominator or _FLOAT, len(plain)) + zlib.compress(plain, 9)
    return MAGIC + _CHECK.pack(zlib.crc32(body)) + body


def unpack(data: bytes) -> Columns:
    """Columns from bytes. Raises ArtifactError where they are cut, too large, or not this layout."""
    start = len(MAGIC) + _CHECK.size
    head = start + _HEADER.size
    if len(data) < head or not data.startswith(MAGIC):
        raise ArtifactError("not packed columns of this version")
    if _CHECK.unpack(data[len(MAGIC) : start])[0] != zlib.crc32(data[start:]):
        raise ArtifactError("packed columns are damaged")
    n, w, denominator, size = _HEADER.unpack(data[start:head])
    if n > MAX_POSITIONS or w > MAX_WIDTH or size > min(MAX_PLAIN, 2 * n + 8 * n + 8 * n * w):
        raise ArtifactError("packed columns state a size beyond the limits")
    reader = _Reader(_inflate(data[head:], size))
    where = reader.take(2 * n, np.uint8).reshape(2, n).T.copy().view("<u2").ravel().astype(np.int64)
    apart = where == _APART
    apart_ids = reader.take(4 * int(apart.sum()), "<u4").astype(np.int64)
    apart_codes = reader.take(4 * int(apart.sum()), "<u4")
    ids = _from_planes(reader, n, w).astype(np.int64)
    codes = _unsteps(_from_planes(reader, n, w), denominator or None)
    reader.finish()
    ids[ids == int(_NO_ENTRY)] = NO_ID
    logprobs = np.where(ids == NO_ID, -np.inf, _values(codes, denominator or None))
    return _with_sampled(ids, logprobs, where, apart_ids, _values(apart_codes, denominator or None))


class _Reader(msgspec.Struct):
    data: bytes
    at: int = 0

    def take(self, size: int, dtype: str | type[np.uint8]) -> NDArray[np.uint32]:
        piece = self.data[self.at : self.at + size]
        if len(piece) != size:
            raise ArtifactError("packed columns are cut")
        self.at += size
        return np.frombuffer(piece, dtype)

    def finish(self) -> None:
        if self.at != len(self.data):
            raise ArtifactError("packed columns hold bytes that no column explains")


def _inflate(data: bytes, size: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(data, size + 1)
    except zlib.error:
        raise ArtifactError("packed columns are damaged") from None
    if len(plain) != size or not stream.eof or stream.unused_data:
        raise ArtifactError("packed columns do not have the stated size")
    return plain


def _sampled(columns: Columns) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Index of the sampled token in its row, or _APART with its id and logprob."""
    same = columns.ids == columns.sampled_ids[:, None]
    where = np.where(same.any(axis=1), same.argmax(axis=1), _APART) if columns.width else np.full(len(columns), _APART)
    listed = where != _APART
    rows = np.flatnonzero(listed)
    equal = np.zeros(len(columns), np.bool_)
    equal[rows] = columns.logprobs[rows, where[rows]] == columns.sampled_logprobs[rows]
    where = np.where(equal, where, _APART)
    apart = where == _APART
    return where, columns.sampled_ids[apart], columns.sampled_logprobs[apart]


def _with_sampled(
    ids: NDArray[np.int64], logprobs: Floats, where: NDArray[np.int64], apart_ids: NDArray[np.int64], apart: Floats
) -> Columns:
    n, w = ids.shape
    listed = where != _APART
    if (where[listed] >= w).any():
        raise ArtifactError("packed columns point outside a row")
    rows = np.flatnonzero(listed)
    sampled_ids, sampled = np.empty(n, np.int64), np.empty(n)
    sampled_ids[rows], sampled[rows] = ids[rows, where[rows]], logprobs[rows, where[rows]]
    sampled_ids[~listed], sampled[~listed] = apart_ids, apart
    return Columns(sampled_ids, sampled, ids, logprobs)


def _ids_bytes(ids: NDArray[np.int64]) -> bytes:
    return _ids32(ids).astype("<u4").tobytes()


def _ids32(ids: NDArray[np.int64]) -> NDArray[np.uint32]:
    if ((ids < NO_ID) | (ids >= int(_NO_ENTRY))).any():
        raise ArtifactError("a token id does not fit 32 bits")
    return ids.astype(np.uint32)


def _codes(values: Floats, denominator: int | None) -> NDArray[np.uint32]:
    """Each logprob as an unsigned code: float32 bits, or minus steps. NaN and -inf have codes of their own."""
    if denominator is None:
        with np.errstate(over="ignore"):
            small = values.astype(np.float32)
        _exact(small.astype(np.float64), values)
        return small.view(np.uint32)
    finite = np.isfinite(values)
    steps = np.where(finite, -np.round(values * denominator), 0.0)
    _exact(np.where(finite, -steps / denominator, values), values)
    if (steps < 0).any() or (steps >= 2**31).any() or np.isposinf(values).any():
        raise ArtifactError("a logprob lies outside the fixed format")
    special = np.where(np.isnan(values), 0xFFFFFFFF, 0xFFFFFFFE)
    return np.where(finite, steps, special).astype(np.uint32)


def _exact(kept: Floats, values: Floats) -> None:
    if not np.array_equal(kept, values, equal_nan=True):
        raise ArtifactError("a logprob is not exact in the stated number format", hint="round the columns first")


def _values(codes: NDArray[np.uint32], denominator: int | None) -> Floats:
    if denominator is None:
        return codes.astype(np.uint32).view(np.float32).astype(np.float64)
    values = np.where(codes == 0, 0.0, -codes.astype(np.float64) / denominator)
    values = np.where(codes == 0xFFFFFFFE, -np.inf, values)
    return np.where(codes == 0xFFFFFFFF, np.nan, values)


def _steps(codes: NDArray[np.uint32], denominator: int | None) -> NDArray[np.uint32]:
    """Fixed format: each entry as the difference to the one before it in its row, modulo 2**32."""
    if denominator is None or codes.shape[1] == 0:
        return codes
    return np.diff(codes, axis=1, prepend=np.zeros((len(codes), 1), np.uint32)).astype(np.uint32)


def _unsteps(steps: NDArray[np.uint32], denominator: int | None) -> NDArray[np.uint32]:
    return steps if denominator is None else np.cumsum(steps, axis=1, dtype=np.uint32)


def _planes(table: NDArray[np.uint32]) -> bytes:
    """uint32 [n, w] by column, then by byte, highest byte first."""
    by_byte = np.ascontiguousarray(table.T).astype(">u4").view(np.uint8).reshape(table.shape[1], table.shape[0], 4)
    return by_byte.transpose(0, 2, 1).tobytes()


def _from_planes(reader: _Reader, n: int, w: int) -> NDArray[np.uint32]:
    flat = reader.take(4 * n * w, np.uint8).reshape(w, 4, n)
    return np.ascontiguousarray(flat.transpose(0, 2, 1)).view(">u4").reshape(w, n).T.astype(np.uint32)
