from __future__ import annotations

import msgspec

from logproof.verify.artifact.artifact import Derivation, Seed
from logproof.verify.artifact.seeds import derive_seed, seed_is_bound


def test_derived_seeds() -> None:
    value = derive_seed("nonce", "request-1")
    assert 0 <= value < 2**31
    assert value == 1075625924
    assert value != derive_seed("noncer", "equest-1")
    bound = Seed(value=value, origin="derived", derivation=Derivation(alg="sha256-31", nonce="nonce", id="request-1"))
    assert seed_is_bound(bound)
    assert not seed_is_bound(msgspec.structs.replace(bound, value=value + 1))
    assert not seed_is_bound(msgspec.structs.replace(bound, derivation=None))
    assert seed_is_bound(Seed(value=1, origin="requester"))
    assert not seed_is_bound(Seed(value=1, origin="executor"))
    assert not seed_is_bound(None)
