from __future__ import annotations

import msgspec

from logproof.verify.artifact.artifact import Artifact, Derivation, Seed
from logproof.verify.artifact.seeds import derivation_holds, derive_seed, seed_is_bound
from verify.builders import artifact, change, logits, record


def test_derived_seeds() -> None:
    value = derive_seed("nonce", "request-1")
    assert 0 <= value < 2**31
    assert value == 1075625924
    assert value != derive_seed("noncer", "equest-1")
    bound = Seed(value=value, origin="derived", derivation=Derivation(alg="sha256-31", nonce="nonce", id="request-1"))
    assert derivation_holds(bound)
    assert not derivation_holds(msgspec.structs.replace(bound, value=value + 1))
    assert not derivation_holds(msgspec.structs.replace(bound, derivation=None))
    assert seed_is_bound(holding(bound, asked=value))
    assert not seed_is_bound(holding(msgspec.structs.replace(bound, value=value + 1), asked=value + 1))


def test_a_derivation_alone_binds_nobody() -> None:
    """An executor derives from nonces of its own until one fits."""
    nonce, value = next((n, v) for n in map(str, range(1000)) if (v := derive_seed(n, "p")) % 100 == 7)
    found = Seed(value=value, origin="derived", derivation=Derivation(alg="sha256-31", nonce=nonce, id="p"))
    assert derivation_holds(found)
    assert not seed_is_bound(holding(found))
    assert not seed_is_bound(holding(found, asked=None))


def holding(seed: Seed | None, asked: int | None = 7) -> Artifact:
    """A record with this seed, whose request asks for another."""
    made = artifact(record(logits(2, 1), [3, 4], 3), seed=asked, k=3)
    return change(made, sampling=msgspec.structs.replace(made.sampling, seed=seed))


def test_a_seed_of_the_requester_stands_in_the_request() -> None:
    assert seed_is_bound(holding(Seed(value=7, origin="requester")))
    assert not seed_is_bound(holding(Seed(value=8, origin="requester")))
    assert not seed_is_bound(holding(Seed(value=7, origin="executor")))
    assert not seed_is_bound(holding(None))
    silent = holding(Seed(value=7, origin="requester"))
    for body in ({}, None, "x"):
        assert not seed_is_bound(change(silent, request=msgspec.structs.replace(silent.request, body=body)))
