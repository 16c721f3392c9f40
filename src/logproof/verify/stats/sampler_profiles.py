"""Sampler profiles: which noise an engine version adds before it takes the best token, as data.

A profile is named in the artifact's claim or found from the engine's name and version. What cannot be replayed says
why; a profile whose equality with the engine was not shown (`proven` False) gives evidence only after a self-test on
the trusted engine passed (policy.py keeps it).
A profile holds only where the engine draws once a step for the request: speculative decoding, recomputation after
preemption and chunked prefill with a seed break the step count.
"""

from __future__ import annotations

import re

import msgspec
import numpy as np

from logproof.errors import UsageError
from logproof.verify.artifact.columns import Floats, Ids
from logproof.verify.stats import sampler_noise


class Profile(msgspec.Struct, frozen=True):
    """id: name in artifacts. noise: key of the noise function, None where it cannot be replayed.

    tolerance: rounding of the engine's own draw, in units of logit / temperature. proven: equality with the engine
    was shown. why: what it is, or why it cannot be replayed.
    """

    id: str
    noise: str | None
    tolerance: float
    proven: bool
    why: str


PROFILES: dict[str, Profile] = {
    p.id: p
    for p in (
        Profile(
            "v1-cpu-splitmix",
            "splitmix",
            1e-5,
            True,
            "vLLM 0.32 V1 on a CPU: a 31-bit seed a step from the request's generator, SplitMix64 a token, Gumbel-max",
        ),
        Profile(
            "v2-gpu-murmur3",
            "murmur3",
            1e-4,
            False,
            "vLLM 0.31 and later, V2 runner: stateless MurmurHash3 of (seed, position, id), float32 Gumbel-max",
        ),
        Profile(
            "v2-gpu-murmur3-fp64",
            "murmur3-fp64",
            1e-5,
            False,
            "as v2-gpu-murmur3, with the flag for 53-bit noise",
        ),
        Profile(
            "v2-gpu-philox",
            "philox",
            1e-4,
            False,
            "vLLM 0.25 to 0.30, V2 runner: Triton Philox of (seed, position), then of the id, float32 Gumbel-max",
        ),
        Profile(
            "v1-cpu-exp",
            None,
            1e-5,
            False,
            "vLLM 0.29 to 0.31 V1 on a CPU: torch's exponential transform of MT19937 is not reproduced here",
        ),
        Profile(
            "v1-cpu-exp-compiled",
            None,
            1e-5,
            False,
            "vLLM up to 0.28 V1 on a CPU: the seed is ignored where a neighbour in the batch has none",
        ),
        Profile(
            "v1-gpu-exp",
            None,
            1e-4,
            False,
            "vLLM V1 on CUDA: an exponential race with the device generator, whose offsets are not reproduced here",
        ),
        Profile("flashinfer", None, 1e-4, False, "FlashInfer sampling takes no seed of a request"),
    )
}


def profile(name: str) -> Profile:
    """The profile of this id. Raises UsageError naming those there are."""
    if name not in PROFILES:
        raise UsageError(f"no sampler profile {name!r}", hint=f"known: {', '.join(sorted(PROFILES))}")
    return PROFILES[name]


_VERSION = re.compile(r"v?(\d+)\.(\d+)")


def find(engine: str | None, version: str | None, runner: str | None, device: str | None) -> Profile | None:
    """The profile that vLLM of this version uses, None where engine, version, runner or device leave it open."""
    match = _VERSION.match(version or "")
    if engine != "vllm" or match is None or device not in ("cpu", "cuda") or runner not in ("v1", "v2"):
        return None
    number = (int(match[1]), int(match[2]))
    if runner == "v2":
        return PROFILES["v2-gpu-murmur3" if number >= (0, 31) else "v2-gpu-philox"] if number >= (0, 25) else None
    if device == "cuda":
        return PROFILES["v1-gpu-exp"]
    if number >= (0, 32):
        return PROFILES["v1-cpu-splitmix"] if number == (0, 32) else None
    return PROFILES["v1-cpu-exp" if number >= (0, 29) else "v1-cpu-exp-compiled"]


def gumbel(chosen: Profile, seed: int, ids: Ids, prompt_tokens: int, start: int = 0) -> Floats:
    """Noise of token ids [n, m] at output positions start .. start + n - 1, float64 [n, m].

    prompt_tokens: length of the prompt, which position-keyed profiles count from (the draw of output i belongs to
    position prompt_tokens + i - 1). Cells of NO_ID get a number without meaning. Raises UsageError for a profile that
    cannot be replayed.
    """
    n = len(ids)
    if chosen.noise is None:
        raise UsageError(f"sampler profile {chosen.id} cannot be replayed: {chosen.why}")
    if chosen.noise == "splitmix":
        return sampler_noise.splitmix_gumbel(sampler_noise.cpu_step_seeds(seed, start + n)[start:], ids)
    positions = (np.arange(start, start + n, dtype=np.int64) + prompt_tokens - 1)[:, None]
    by_position = {
        "murmur3": sampler_noise.murmur_gumbel,
        "murmur3-fp64": sampler_noise.murmur_gumbel64,
        "philox": sampler_noise.philox_gumbel,
    }
    return by_position[chosen.noise](seed, positions, ids)
