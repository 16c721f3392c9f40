from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logproof.errors import UsageError
from logproof.verify.stats import sampler_noise, sampler_profiles
from verify.builders import quick

MASK = 2**64 - 1


def slow_mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def slow_murmur(data: bytes, seed: int) -> int:
    """MurmurHash3 x86_32 over any bytes, written from its description."""

    def rotl(x: int, r: int) -> int:
        return ((x << r) | (x >> (32 - r))) & 0xFFFFFFFF

    h, tail = seed, len(data) // 4 * 4
    for i in range(0, tail, 4):
        k = rotl(int.from_bytes(data[i : i + 4], "little") * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF
        h = (rotl(h ^ k, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF
    if data[tail:]:
        k = rotl(int.from_bytes(data[tail:], "little") * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF
        h ^= k
    h ^= len(data)
    h = ((h ^ (h >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    h = ((h ^ (h >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return h ^ (h >> 16)


def test_splitmix_known_answers() -> None:
    states = np.array([(1234567 + i * sampler_noise.GOLDEN) & MASK for i in range(1, 6)], np.uint64)
    assert sampler_noise.splitmix64(states).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


@quick
@given(st.integers(0, MASK))
def test_splitmix_equals_the_integer_form(state: int) -> None:
    assert int(sampler_noise.splitmix64(np.array([state], np.uint64))[0]) == slow_mix(state)


def test_mt19937_known_answers() -> None:
    words = sampler_noise.mt19937(5489, 10_000)
    assert (int(words[0]), int(words[-1])) == (3499211612, 4123659995)
    assert sampler_noise.mt19937(5489 + 2**32, 3).tolist() == words[:3].tolist()


def test_step_seeds_take_the_second_of_two_words() -> None:
    words = sampler_noise.mt19937(42, 8)
    assert sampler_noise.cpu_step_seeds(42, 4).tolist() == [int(w) % 2**31 for w in words[1::2]]


def test_philox_known_answers() -> None:
    def run(c: list[int], k: list[int]) -> list[int]:
        c0, c1, c2, c3 = (np.array(v, np.uint32) for v in c)
        out = sampler_noise.philox4x32((c0, c1, c2, c3), (np.array(k[0], np.uint32), np.array(k[1], np.uint32)))
        return [int(v) for v in out]

    f = 0xFFFFFFFF
    assert run([0] * 4, [0, 0]) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert run([f] * 4, [f, f]) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    pi = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]
    assert run(pi, [0xA4093822, 0x299F31D0]) == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


def test_the_slow_murmur_has_its_known_answers() -> None:
    assert slow_murmur(b"test", 0) == 0xBA6BD213
    assert slow_murmur(b"Hello, world!", 0) == 0xC0363E43
    assert slow_murmur(b"The quick brown fox jumps over the lazy dog", 0) == 0x2E4FF723


@quick
@given(st.integers(0, 2**63 - 1), st.integers(0, 2**40), st.integers(0, 2**31 - 1), st.sampled_from([0, 0x9E3779B9]))
def test_murmur_equals_the_byte_form(seed: int, position: int, token: int, domain: int) -> None:
    words = (seed & 0xFFFFFFFF, seed >> 32, position & 0xFFFFFFFF, token)
    data = b"".join(w.to_bytes(4, "little") for w in words)
    fast = sampler_noise.murmur3(seed, np.array([[position]]), np.array([[token]]), domain)
    assert int(fast[0, 0]) == slow_murmur(data, domain)


@quick
@given(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))
def test_splitmix_gumbel_equals_the_scalar_form(step: int, token: int) -> None:
    bits = slow_mix((slow_mix(step) + (token + 1) * sampler_noise.GOLDEN) & MASK) >> 11
    u = min((bits + 0.5) / 2**53, 1 - 2.0**-53)
    fast = sampler_noise.splitmix_gumbel(np.array([step], np.uint64), np.array([[token]]))
    assert fast[0, 0] == pytest.approx(-np.log(-np.log(u)), abs=1e-12)


@pytest.mark.parametrize("name", [p for p, v in sampler_profiles.PROFILES.items() if v.noise])
def test_noise_is_gumbel_and_a_pure_function(name: str) -> None:
    ids = np.arange(4000)[None, :].repeat(3, axis=0)
    chosen = sampler_profiles.profile(name)
    first = sampler_profiles.gumbel(chosen, 99, ids, prompt_tokens=5)
    assert np.isfinite(first).all()
    assert first.mean() == pytest.approx(0.5772, abs=0.05)
    assert first.std() == pytest.approx(np.pi / np.sqrt(6), abs=0.05)
    assert np.array_equal(first[1:], sampler_profiles.gumbel(chosen, 99, ids[1:], prompt_tokens=5, start=1))
    assert not np.allclose(first, sampler_profiles.gumbel(chosen, 100, ids, prompt_tokens=5))
    few = sampler_profiles.gumbel(chosen, 99, ids[:, [7, 3]], prompt_tokens=5)
    assert np.array_equal(few, first[:, [7, 3]])


@pytest.mark.parametrize(
    ("name", "depends"), [("v1-cpu-splitmix", False), ("v2-gpu-murmur3", True), ("v2-gpu-philox", True)]
)
def test_position_keyed_profiles_count_from_the_prompt(name: str, depends: bool) -> None:
    ids = np.arange(5)[None, :]
    chosen = sampler_profiles.profile(name)
    same = np.array_equal(sampler_profiles.gumbel(chosen, 1, ids, 5), sampler_profiles.gumbel(chosen, 1, ids, 6))
    assert same is not depends


def test_a_profile_without_replay_says_why() -> None:
    with pytest.raises(UsageError, match="cannot be replayed"):
        sampler_profiles.gumbel(sampler_profiles.profile("flashinfer"), 1, np.zeros((1, 1), np.int64), 1)
    with pytest.raises(UsageError, match="no sampler profile"):
        sampler_profiles.profile("guess")


@pytest.mark.parametrize(
    ("engine", "version", "runner", "device", "found"),
    [
        ("vllm", "0.32.0", "v1", "cpu", "v1-cpu-splitmix"),
        ("vllm", "0.33.1", "v1", "cpu", None),
        ("vllm", "0.30.0", "v1", "cpu", "v1-cpu-exp"),
        ("vllm", "v0.25.1", "v1", "cpu", "v1-cpu-exp-compiled"),
        ("vllm", "0.31.0", "v2", "cuda", "v2-gpu-murmur3"),
        ("vllm", "0.29.0", "v2", "cuda", "v2-gpu-philox"),
        ("vllm", "0.20.0", "v2", "cuda", None),
        ("vllm", "0.32.0", "v1", "cuda", "v1-gpu-exp"),
        ("vllm", "0.32.0", None, "cpu", None),
        ("vllm", None, "v1", "cpu", None),
        ("sglang", "0.5.0", "v1", "cpu", None),
    ],
)
def test_profile_from_the_engine(
    engine: str, version: str | None, runner: str | None, device: str, found: str | None
) -> None:
    chosen = sampler_profiles.find(engine, version, runner, device)
    assert (chosen.id if chosen else None) == found
