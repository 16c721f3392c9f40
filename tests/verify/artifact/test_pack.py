from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logproof.errors import ArtifactError
from logproof.verify.artifact import pack
from logproof.verify.artifact.columns import Columns, make_columns
from logproof.verify.stats.support import Sampler
from verify.builders import draw, logits, quick, record


def equal(a: Columns, b: Columns) -> bool:
    return (
        np.array_equal(a.sampled_ids, b.sampled_ids)
        and np.array_equal(a.sampled_logprobs, b.sampled_logprobs, equal_nan=True)
        and np.array_equal(a.ids, b.ids)
        and np.array_equal(a.logprobs, b.logprobs)
    )


rows = st.lists(
    st.dictionaries(st.integers(0, 2**32 - 2), st.floats(-80, 0, width=32), max_size=6), min_size=0, max_size=8
)


@quick
@given(rows, st.data())
def test_round_trip_is_exact(maps: list[dict[int, float]], data: st.DataObject) -> None:
    ids = [data.draw(st.sampled_from([*m, 3])) for m in maps]
    drawn = [m.get(t, data.draw(st.none() | st.floats(-80, 0, width=32))) for m, t in zip(maps, ids, strict=True)]
    c = make_columns(ids, drawn, [list(m) for m in maps], [list(m.values()) for m in maps])
    assert equal(pack.unpack(pack.pack(c)), c)
    fixed = pack.to_fixed(c)
    assert equal(pack.unpack(pack.pack(fixed, 1024)), fixed)
    assert (np.abs(fixed.sampled_logprobs - c.sampled_logprobs)[~np.isnan(c.sampled_logprobs)] <= 0.5 / 1024).all()


def textlike(n: int, k: int) -> Columns:
    """Rows over a vocabulary of 49,152 where few ids are frequent and one entry in twenty tokens is not listed."""
    rng = np.random.default_rng(3)
    rows = [rng.permutation(np.unique(rng.zipf(1.25, 40 * k) % 49152))[:k].tolist() for _ in range(n)]
    depths = -np.sort(rng.gamma(2.0, 1.6, (n, k)), axis=1)
    where = np.where(rng.random(n) < 0.05, -1, rng.geometric(0.6, n).clip(1, k) - 1)
    ids = [int(rng.integers(0, 49152)) if j < 0 else row[j] for j, row in zip(where, rows, strict=True)]
    drawn = [-9.0 if j < 0 else float(d[j]) for j, d in zip(where, depths, strict=True)]
    return make_columns(ids, drawn, rows, depths.tolist())


def test_size_a_position_at_five_entries() -> None:
    c = pack.to_fixed(textlike(1000, 5))
    assert len(pack.pack(c, 1024)) / 1000 <= 20.0


def test_values_off_the_format_are_refused() -> None:
    c = make_columns([1], [-0.1], [[1]], [[-0.1]])
    with pytest.raises(ArtifactError, match="not exact"):
        pack.pack(c)
    with pytest.raises(ArtifactError, match="not exact"):
        pack.pack(c, 1024)
    assert equal(pack.unpack(pack.pack(pack.to_float32(c))), pack.to_float32(c))


@pytest.mark.parametrize("value", [1.0, -(2.0**31)])
def test_values_beyond_the_fixed_format_are_refused(value: float) -> None:
    with pytest.raises(ArtifactError, match="outside"):
        pack.pack(make_columns([1], [value], [[1]], [[value]]), 1024)


def test_ids_beyond_32_bits_are_refused() -> None:
    with pytest.raises(ArtifactError, match="32 bits"):
        pack.pack(make_columns([1], [-1.0], [[2**32]], [[-2.0]]))


def test_too_many_positions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "MAX_POSITIONS", 1)
    with pytest.raises(ArtifactError, match="limits"):
        pack.pack(make_columns([1, 2], [None, None], [[], []], [[], []]))


def test_every_damage_is_an_artifact_error() -> None:
    z = logits(20, 1)
    whole = pack.pack(record(z, draw(z, Sampler(1.0), 1), 4))
    assert pack.unpack(whole).width == 4
    for cut in range(0, len(whole), 7):
        with pytest.raises(ArtifactError):
            pack.unpack(whole[:cut])
    for at in range(len(whole)):
        broken = bytearray(whole)
        broken[at] ^= 0x5A
        with pytest.raises(ArtifactError):
            pack.unpack(bytes(broken))
    with pytest.raises(ArtifactError):
        pack.unpack(whole + b"x")


def handmade(n: int, w: int, plain: bytes, size: int | None = None) -> bytes:
    body = struct.pack("<IHIQ", n, w, 0, len(plain) if size is None else size) + zlib.compress(plain)
    return pack.MAGIC + struct.pack("<I", zlib.crc32(body)) + body


def test_a_bomb_is_not_inflated() -> None:
    with pytest.raises(ArtifactError, match="beyond the limits"):
        pack.unpack(handmade(10, 2, b"\0" * 10_000))
    with pytest.raises(ArtifactError, match="stated size"):
        pack.unpack(handmade(1, 1, b"\0" * 10_000_000, size=18))
    not_zlib = struct.pack("<IHIQ", 1, 1, 0, 10) + b"no zlib"
    with pytest.raises(ArtifactError, match="damaged"):
        pack.unpack(pack.MAGIC + struct.pack("<I", zlib.crc32(not_zlib)) + not_zlib)


def test_inner_contradictions_are_refused() -> None:
    with pytest.raises(ArtifactError, match="cut"):
        pack.unpack(handmade(1, 1, b"\0" * 4))
    with pytest.raises(ArtifactError, match="explains"):
        pack.unpack(handmade(1, 1, b"\0" * 12))
    with pytest.raises(ArtifactError, match="outside a row"):
        pack.unpack(handmade(1, 1, b"\x05\0" + b"\0" * 8))
