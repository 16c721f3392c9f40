"""Seeds that the executor cannot choose: those that the request states, derived from a nonce or not."""

from __future__ import annotations

import hashlib

from logproof.verify.artifact.artifact import Artifact, Seed
from logproof.verify.artifact.request_body import read_stated


def derive_seed(nonce: str, request_id: str) -> int:
    """Seed in 0 .. 2**31 - 1 that neither side can choose alone.

    The low 31 bits of SHA-256 over the domain tag and both texts, each preceded by its byte length as eight
    big-endian bytes.
    """
    parts = [b"logproof-seed", nonce.encode(), request_id.encode()]
    framed = b"".join(len(p).to_bytes(8, "big") + p for p in parts)
    return int.from_bytes(hashlib.sha256(framed).digest(), "big") & 0x7FFFFFFF


def seed_is_bound(artifact: Artifact) -> bool:
    """Whether the executor could not have chosen the seed: the recorded request states it.

    A derivation shows how it was made, and binds nobody by itself: an executor may derive from as many nonces as it
    likes until one fits.
    """
    seed = artifact.sampling.seed
    if seed is None or seed.origin not in ("requester", "derived"):
        return False
    if seed.origin == "derived" and not derivation_holds(seed):
        return False
    stated = read_stated(artifact)
    asked = None if stated is None else stated.sampling.seed
    return asked is not None and asked.value == seed.value


def derivation_holds(seed: Seed) -> bool:
    """Whether the seed follows from the nonce and the id that it names."""
    return seed.derivation is not None and derive_seed(seed.derivation.nonce, seed.derivation.id) == seed.value
