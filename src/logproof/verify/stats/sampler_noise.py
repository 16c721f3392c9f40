"""Random streams of engine samplers, as pure integer functions on arrays. Each has known-answer tests.

Sources: SplitMix64 (Steele, Lea, Flood 2014), MurmurHash3 x86_32 (Appleby), Philox 4x32-10 (Salmon et al. 2011),
MT19937 (Matsumoto, Nishimura 1998); how vLLM's samplers feed them was read in the 0.30 and 0.32 wheels.
"""

from __future__ import annotations

from functools import lru_cache
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from logproof.verify.artifact.columns import Floats, Ids

U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]
GOLDEN = 0x9E3779B97F4A7C15
LEAST_UNIFORM = 4.6566127342e-10
"""Smallest positive float32 that Triton's rand gives; zero is lifted to it."""


def splitmix64(state: U64) -> U64:
    """SplitMix64's output function of a state, modulo 2**64."""
    z = state ^ (state >> np.uint64(30))
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


_STREAM, _TURN = np.random.RandomState(), Lock()


def mt19937(seed: int, count: int) -> U32:
    """The first `count` 32-bit words of MT19937 seeded by the low 32 bits of `seed`, as torch's CPU generator does.

    One generator is seeded again and again, in turn: making one reads the system's entropy, at many times the cost.
    """
    with _TURN:
        _STREAM.seed(seed & 0xFFFFFFFF)
        return _STREAM.randint(0, 2**32, size=count, dtype=np.uint32)


@lru_cache(maxsize=256)
def cpu_step_seeds(seed: int, steps: int) -> U64:
    """torch.randint(0, 2**31, (1,), dtype=int64) drawn `steps` times from a CPU generator with this seed.

    Each draw takes two words; the low 31 bits of the second remain. The array is shared and cannot be written.
    """
    words = mt19937(seed, 2 * steps)
    drawn = (words[1::2] & np.uint32(0x7FFFFFFF)).astype(np.uint64)
    drawn.flags.writeable = False
    return drawn


def splitmix_gumbel(step_seeds: U64, ids: Ids) -> Floats:
    """Gumbel noise of token ids [n, m] at n steps: 53 bits of SplitMix64 keyed by the mixed step seed."""
    state = ids.astype(np.uint64)
    state += np.uint64(1)
    state *= np.uint64(GOLDEN)
    state += splitmix64(np.asarray(step_seeds, np.uint64))[:, None]
    return _gumbel(splitmix64(state) >> np.uint64(11))


def _gumbel(bits: U64) -> Floats:
    """-ln(-ln u) of 53-bit integers, u = (bits + 0.5) / 2**53 and below 1."""
    u = bits.astype(np.float64)
    u += 0.5
    u *= 2.0**-53
    np.minimum(u, 1.0 - 2.0**-53, out=u)
    for _ in range(2):
        np.log(u, out=u)
        np.negative(u, out=u)
    return u


def _rotate(value: U32, shift: int) -> U32:
    return np.asarray((value << np.uint32(shift)) | (value >> np.uint32(32 - shift)), np.uint32)


def _murmur_mix(h: U32, word: U32) -> U32:
    word = _rotate(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return np.asarray(_rotate(h ^ word, 13) * np.uint32(5) + np.uint32(0xE6546B64), np.uint32)


def murmur3(seed: int, positions: Ids, ids: Ids, domain: int = 0) -> U32:
    """MurmurHash3 x86_32, seeded by `domain`, of the words (seed low, seed high, position, id).

    positions: int64 [n, 1] or [n, m]; ids: int64 [n, m] -> uint32 [n, m].
    """
    h = np.full(np.broadcast_shapes(positions.shape, ids.shape), domain, np.uint32)
    seed_words = (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF)
    for word in seed_words:
        h = _murmur_mix(h, np.full(h.shape, word, np.uint32))
    h = _murmur_mix(h, np.broadcast_to((positions & 0xFFFFFFFF).astype(np.uint32), h.shape))
    h = _murmur_mix(h, np.broadcast_to((ids & 0xFFFFFFFF).astype(np.uint32), h.shape))
    h = h ^ np.uint32(16)
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return np.asarray(h ^ (h >> np.uint32(16)), np.uint32)


def murmur_gumbel(seed: int, positions: Ids, ids: Ids) -> Floats:
    """float32 Gumbel noise -ln(-ln(1 - u)), u = (hash + 0.5) / 2**32."""
    uniform = (murmur3(seed, positions, ids).astype(np.float64) + 0.5) * 2.0**-32
    return np.asarray(-np.log(-np.log1p(-uniform)), np.float64)


def murmur_gumbel64(seed: int, positions: Ids, ids: Ids) -> Floats:
    """float64 Gumbel noise -ln(-ln u) of 53 bits from two hashes (domains 0 and 0x9E3779B9)."""
    low = murmur3(seed, positions, ids).astype(np.uint64)
    high = murmur3(seed, positions, ids, domain=0x9E3779B9).astype(np.uint64)
    return _gumbel(((high << np.uint64(32)) | low) >> np.uint64(11))


def philox4x32(counter: tuple[U32, U32, U32, U32], key: tuple[U32, U32]) -> tuple[U32, U32, U32, U32]:
    """Philox 4x32 with ten rounds. All arrays of one shape (or scalars), uint32."""
    c0, c1, c2, c3 = (np.asarray(c, np.uint32) for c in counter)
    k0, k1 = (np.asarray(k, np.uint64) for k in key)
    for _ in range(10):
        left = c0.astype(np.uint64) * np.uint64(0xD2511F53)
        right = c2.astype(np.uint64) * np.uint64(0xCD9E8D57)
        c0, c2 = _high(right) ^ c1 ^ _low(k0), _high(left) ^ c3 ^ _low(k1)
        c1, c3 = _low(right), _low(left)
        k0, k1 = k0 + np.uint64(0x9E3779B9), k1 + np.uint64(0xBB67AE85)
    return c0, c1, c2, c3


def _high(value: U64) -> U32:
    return np.asarray(value >> np.uint64(32), np.uint64).astype(np.uint32)


def _low(value: U64) -> U32:
    return np.asarray(value & np.uint64(0xFFFFFFFF), np.uint64).astype(np.uint32)


def _philox_word(seed: U64, offset: U64) -> U32:
    zero = np.zeros(np.broadcast_shapes(seed.shape, offset.shape), np.uint32)
    return philox4x32((_low(offset) | zero, zero, zero, zero), (_low(seed) | zero, _high(seed) | zero))[0]


def philox_gumbel(seed: int, positions: Ids, ids: Ids) -> Floats:
    """float32 Gumbel noise of Triton's rand: a Philox word of (seed, position) seeds one of each token id.

    The second seed is that word as a signed 32-bit integer, widened to 64 bits.
    """
    outer = _philox_word(np.asarray(seed & (2**64 - 1), np.uint64), positions.astype(np.uint64))
    inner_seed = outer.view(np.int32).astype(np.int64).view(np.uint64)
    word = _philox_word(inner_seed, ids.astype(np.uint64)).view(np.int32).astype(np.int64)
    uniform = np.where(word < 0, -word - 1, word).astype(np.float64) * LEAST_UNIFORM
    return np.asarray(-np.log(-np.log1p(-np.maximum(uniform, LEAST_UNIFORM))), np.float64)
