"""Wide channels as one compressed blob: a mapping name -> column, packed beside its record.

A column is a numpy array (bool, integer or float, one or two axes) or a list of strings with None for an
unknown one. NaN and infinities in float columns survive: the bytes are stored, not a text of them.

Layout: magic, uint32 length of the head (little-endian), head (JSON: name, dtype, shape and bytes of each column,
and the dtype of its bytes where that is a narrower one), then all columns in that order: one zlib stream, or the
plain bytes where they are few or a stream would be no shorter. Numbers are stored as the narrowest type that holds
each of them exactly, byte plane by byte plane, which halves what zlib leaves of them; strings as one JSON list.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from logproof.errors import StoreError

Array = NDArray[np.generic]
Texts = Sequence[str | None]
Column = Array | Texts

MAGIC = b"LPCOL1\r\n"
MAX_BYTES = 1 << 30
"""Largest size of the columns of one blob, in bytes as stored before zlib."""
PLAIN_BYTES = 1024
"""Columns of at most so many bytes stay plain: starting zlib costs more than they do."""

_TEXT = "text"
_NARROW = tuple((np.iinfo(name).max, np.dtype(name)) for name in ("|u1", "<u2", "<u4"))
_WHOLE, _UNSIGNED, _DOUBLE, _SINGLE = np.dtype("<i8"), np.dtype("<u8"), np.dtype("<f8"), np.dtype("<f4")


class _Part(msgspec.Struct, array_like=True):
    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int
    stored: str = ""


def pack(columns: Mapping[str, Column], level: int = 1) -> bytes:
    """One blob of all columns; b"" for none. Raises StoreError for another kind of column or too many bytes."""
    if not columns:
        return b""
    parts: list[_Part] = []
    bodies: list[bytes] = []
    for name, column in columns.items():
        part, body = _array(name, column) if isinstance(column, np.ndarray) else _texts(name, column)
        parts.append(part)
        bodies.append(body)
    body = b"".join(bodies)
    if len(body) > MAX_BYTES:
        raise StoreError(f"the columns of one record hold more than {MAX_BYTES} bytes")
    if len(body) > PLAIN_BYTES:
        body = min(_deflate(body, level), body, key=len)
    head = msgspec.json.encode(parts)
    return b"".join((MAGIC, struct.pack("<I", len(head)), head, body))


def _deflate(body: bytes, level: int) -> bytes:
    """One zlib stream. A short one gets a window of its own size: making the usual tables costs more than it does."""
    window, memory = (12, 5) if len(body) <= 1 << 12 else (15, 8)
    stream = zlib.compressobj(level, zlib.DEFLATED, window, memory)
    return stream.compress(body) + stream.flush()


def unpack(blob: bytes) -> dict[str, Column]:
    """The columns of a blob made by `pack`, equal in dtype, shape and bits. Raises StoreError if it is damaged."""
    if not blob:
        return {}
    try:
        parts, body = _open(blob)
        return _split(parts, body)
    except (struct.error, zlib.error, msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        raise StoreError(f"a stored column blob is damaged: {error}") from None


def _open(blob: bytes) -> tuple[list[_Part], bytes]:
    if blob[:8] != MAGIC:
        raise ValueError("it does not start as one")
    (length,) = struct.unpack_from("<I", blob, 8)
    parts = msgspec.json.decode(blob[12 : 12 + length], type=list[_Part])
    total = sum(part.size for part in parts)
    if total > MAX_BYTES or any(part.size < 0 for part in parts):
        raise ValueError("its sizes are out of bounds")
    body = blob[12 + length :]
    if len(body) == total:
        return parts, body
    stream = zlib.decompressobj()
    body = stream.decompress(body, total + 1)
    if len(body) != total or not stream.eof:
        raise ValueError("its length differs from what its head says")
    return parts, body


def _split(parts: list[_Part], body: bytes) -> dict[str, Column]:
    columns: dict[str, Column] = {}
    start = 0
    for part in parts:
        piece = body[start : start + part.size]
        columns[part.name] = _to_texts(part, piece) if part.dtype == _TEXT else _to_array(part, piece)
        start += part.size
    return columns


def _array(name: str, column: Array) -> tuple[_Part, bytes]:
    if column.dtype.kind not in "biuf" or column.ndim not in (1, 2):
        raise StoreError(f"column {name} is no 1-D or 2-D array of numbers ({column.dtype}, {column.ndim} axes)")
    flat = np.ascontiguousarray(column.astype(column.dtype.newbyteorder("<"), copy=False)).reshape(-1)
    kept = _narrow(flat)
    planes = kept.view(np.uint8).reshape(-1, kept.dtype.itemsize).T
    stored = "" if kept is flat else kept.dtype.str
    return _Part(name, flat.dtype.str, column.shape, kept.nbytes, stored), planes.tobytes()


def _narrow(flat: Array) -> Array:
    """The same numbers in fewer bytes, where every one of them comes back bit for bit; else the array itself."""
    if flat.dtype == _WHOLE and flat.size:
        most = flat.view(_UNSIGNED).max()  # of a negative number: more than any narrower type holds
        return next((flat.astype(dtype) for top, dtype in _NARROW if most <= top), flat)
    if flat.dtype == _DOUBLE:
        with np.errstate(over="ignore", invalid="ignore"):
            single = flat.astype(_SINGLE)
            back = single.astype(_DOUBLE)
        return single if back.tobytes() == flat.tobytes() else flat
    return flat


def _to_array(part: _Part, piece: bytes) -> Array:
    dtype, stored = np.dtype(part.dtype), np.dtype(part.stored or part.dtype)
    if dtype.kind not in "biuf" or stored.kind not in "biuf":
        raise ValueError(f"dtype {part.dtype} in {part.stored}")
    planes = np.frombuffer(piece, np.uint8).reshape(stored.itemsize, -1)
    flat: Array = np.ascontiguousarray(planes.T).reshape(-1).view(stored)
    return flat.astype(dtype, copy=False).reshape(part.shape)


def _texts(name: str, column: Texts) -> tuple[_Part, bytes]:
    if isinstance(column, str) or not set(map(type, column)) <= {str, type(None)}:
        raise StoreError(f"column {name} is neither an array nor a list of strings")
    texts = list(column)
    try:
        body = msgspec.json.encode(texts)
    except UnicodeEncodeError:  # a lone surrogate, which UTF-8 cannot hold but a JSON escape can
        body = json.dumps(texts).encode("ascii")
    return _Part(name, _TEXT, (len(texts),), len(body)), body


def _to_texts(part: _Part, piece: bytes) -> list[str | None]:
    texts = json.loads(piece)
    if not isinstance(texts, list) or (len(texts),) != part.shape:
        raise ValueError(f"length of column {part.name}")
    if not set(map(type, texts)) <= {str, type(None)}:
        raise ValueError(f"column {part.name} holds something else than strings")
    return texts
