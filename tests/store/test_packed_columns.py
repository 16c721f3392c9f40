from __future__ import annotations

import struct
import zlib

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logproof.errors import StoreError
from logproof.store import packed_columns as module
from logproof.store.packed_columns import MAGIC, Column, pack, unpack

dtypes = st.sampled_from(["<i8", "<i4", "<f8", "<f4", "|b1", "|u1", "<u2", "<f2"])
texts = st.lists(st.none() | st.text(st.characters(codec=None), max_size=5), max_size=6)


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    dtype = np.dtype(draw(dtypes))
    shape = draw(st.tuples(st.integers(0, 5)) | st.tuples(st.integers(0, 4), st.integers(0, 4)))
    size = int(np.prod(shape)) * dtype.itemsize
    raw = draw(st.binary(min_size=size, max_size=size))
    if dtype.kind == "b":
        return (np.frombuffer(raw, np.uint8) % 2).astype(bool).reshape(shape)
    return np.frombuffer(raw, dtype).reshape(shape)


@given(st.dictionaries(st.text(max_size=5), arrays() | texts, max_size=4))
def test_columns_come_back_bit_for_bit(given_columns: dict[str, Column]) -> None:
    back = unpack(pack(given_columns))
    assert list(back) == list(given_columns)
    for name, column in given_columns.items():
        got = back[name]
        if isinstance(column, np.ndarray):
            assert isinstance(got, np.ndarray)
            assert (got.dtype, got.shape, got.tobytes()) == (column.dtype, column.shape, column.tobytes())
        else:
            assert got == column


def test_arrays_of_any_memory_layout_are_taken() -> None:
    grid = np.arange(12, dtype=">i4").reshape(3, 4).T[::2]
    back = unpack(pack({"grid": grid}))["grid"]
    assert isinstance(back, np.ndarray)
    assert back.tolist() == grid.tolist()
    back[0, 0] = 7


def test_a_tuple_of_texts_is_a_column_too() -> None:
    assert unpack(pack({"texts": ("a", None)})) == {"texts": ["a", None]}


def test_nothing_is_an_empty_blob() -> None:
    assert pack({}) == b""
    assert unpack(b"") == {}


def test_wide_channels_shrink() -> None:
    logprobs = np.round(-np.random.default_rng(1).random(13_860) * 20, 6)
    ids = np.random.default_rng(2).integers(0, 49_152, 13_860)
    raw = logprobs.nbytes + ids.nbytes
    assert len(pack({"logprobs": logprobs, "ids": ids})) < 0.62 * raw


@pytest.mark.parametrize("bad", [np.array(["a"]), np.array([1j]), np.zeros((1, 1, 1)), "text", [1, 2]])
def test_other_columns_are_refused_by_name(bad: Column) -> None:
    with pytest.raises(StoreError, match="column wide"):
        pack({"wide": bad})


def test_a_record_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 100)
    with pytest.raises(StoreError, match="more than 100 bytes"):
        pack({"wide": np.zeros(30)})


def blob(parts: list[list[object]], body: bytes) -> bytes:
    head = msgspec.json.encode(parts)
    return MAGIC + struct.pack("<I", len(head)) + head + zlib.compress(body)


@pytest.mark.parametrize(
    "damaged",
    [
        b"x",
        b"another thing altogether",
        MAGIC + b"\xff",
        MAGIC + struct.pack("<I", 4) + b"[[1]" + b"x",
        blob([["a", "<i8", [1], 8]], b"\0" * 7),
        blob([["a", "<i8", [1], 8]], b"\0" * 9),
        blob([["a", "<i8", [2], 8]], b"\0" * 8),
        blob([["a", "O", [1], 8]], b"\0" * 8),
        blob([["a", "text", [2], 5]], b'["x"]'),
        blob([["a", "text", [1], 3]], b"[1]"),
        blob([["a", "text", [1], 3]], b"{1}"),
        blob([["a", "text", [0], 2]], b"{}"),
        blob([["a", "<i8", [1], 1, "O"]], b"\0"),
        blob([["a", "<i8", [2], 1, "|u1"]], b"\0"),
        blob([["a", "|u1", [1], 1 << 40]], b"\0"),
        blob([["a", "|u1", [1], -1], ["b", "|u1", [1], 2]], b"\0"),
    ],
)
def test_a_damaged_blob_never_becomes_a_column(damaged: bytes) -> None:
    with pytest.raises(StoreError, match="column blob is damaged"):
        unpack(damaged)


@given(st.data())
def test_a_cut_blob_never_becomes_a_column(data: st.DataObject) -> None:
    whole = pack({"ids": np.arange(50), "texts": ["a", None, "bc"]})
    cut = data.draw(st.integers(1, len(whole) - 1))
    with pytest.raises(StoreError):
        unpack(whole[:cut])


@pytest.mark.parametrize(
    "column",
    [
        np.array([0, 255]),
        np.array([0, 256]),
        np.array([65_536, 0]),
        np.array([2**32, 1]),
        np.array([-1, 3]),
        np.array([2**63 - 1]),
        np.array([np.float32(-0.1), np.nan, -np.inf, -0.0]).astype(np.float64),
        np.array([-0.1, 1e300]),
        np.array([], dtype=np.int64),
    ],
)
def test_narrow_numbers_come_back_in_their_own_type(column: np.ndarray) -> None:
    back = unpack(pack({"c": column}))["c"]
    assert isinstance(back, np.ndarray)
    assert (back.dtype, back.tobytes()) == (column.dtype, column.tobytes())


def test_ids_and_logprobs_of_an_engine_take_few_bytes() -> None:
    """Engines report float32 values; ids below 65,536 are two bytes each."""
    rng = np.random.default_rng(3)
    logprobs = (-rng.random(100)).astype(np.float32).astype(np.float64)
    few = pack({"ids": rng.integers(0, 49_152, 100), "logprobs": logprobs})
    assert len(few) < 100 * (2 + 4) + 120


@pytest.mark.parametrize("count", [1, 100, 200, 5000])
def test_short_and_long_columns_both_come_back(count: int) -> None:
    texts = [f"t{i % 7}" for i in range(count)]
    noise = np.random.default_rng(4).random(count)
    back = unpack(pack({"texts": texts, "noise": noise}))
    assert back["texts"] == texts
    assert np.array_equal(back["noise"], noise)
