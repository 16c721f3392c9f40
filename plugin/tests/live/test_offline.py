"""One engine in a process of its own, with the plugin and without: what must be equal is compared bit by bit."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.live

ORDINARY = 4
ENFORCED = [100, 2, 30000, 17, 4000, 45000, 6, 1]
PREFILL_NOISE = 1e-4  # float32 on the CPU, decode against prefill


def replies(offline: Any, kind: str, scene: str) -> list[dict[str, Any]]:
    return list(offline[kind][scene]["replies"])


def values(reply: dict[str, Any]) -> list[float]:
    """The logprob of each emitted token."""
    return [float.fromhex({row[0]: row[1] for row in step}[i]) for i, step in zip(*tokens(reply), strict=True)]


def tokens(reply: dict[str, Any]) -> tuple[list[int], list[Any]]:
    return reply["ids"], reply["logprobs"]


def test_ordinary_rows_of_a_mixed_batch_are_bit_identical_to_a_stock_engines(offline: Any) -> None:
    """Greedy, seeded, grammar, unseeded with penalties; ids, texts, every logprob, top-k entry and rank."""
    assert offline["plugin"]["mixed"]["steps"] == offline["stock"]["mixed"]["steps"]
    assert [len(step) for step in offline["stock"]["mixed"]["steps"][1:12]] == [8] * 11
    stock, plugin = (replies(offline, kind, "mixed") for kind in ("stock", "plugin"))
    for got, want in zip(plugin[:ORDINARY], stock[:ORDINARY], strict=True):
        assert len(want["ids"]) == 12
        assert got == want


def test_the_other_rows_of_that_batch_did_what_they_asked_for(offline: Any) -> None:
    raw, processed, sampled, broken = replies(offline, "plugin", "mixed")[ORDINARY:]
    assert raw["ids"][:8] == processed["ids"][:8] == ENFORCED
    assert min(values(raw)) > -100
    assert min(values(processed)[:8]) == float("-inf")
    assert broken["ids"][:3] == [5, 6, 7]
    plain = replies(offline, "stock", "mixed")[ORDINARY + 2]
    assert sampled["ids"] == plain["ids"]
    assert values(sampled) != values(plain)


def test_preempted_and_chunked_requests_replay_exactly(offline: Any) -> None:
    """The engine counts the preemptions; no step holds a whole prompt of 120 tokens."""
    scene = offline["plugin"]["pressed"]
    assert scene["preemptions"] > 0
    assert max(sum(step) for step in scene["steps"]) <= 64
    for reply, ids, prefill in zip(scene["replies"], scene["enforced"], scene["prefill"], strict=True):
        assert reply["ids"][: len(ids)] == ids
        assert len(reply["ids"]) == len(ids) + 2
        gaps = [abs(a - b) for a, b in zip(values(reply)[: len(ids)], prefill, strict=True)]
        assert max(gaps) <= PREFILL_NOISE


def test_under_speculative_decoding_ordinary_requests_are_bit_identical(offline: Any) -> None:
    """Twelve tokens in fewer than twelve steps: drafts were verified and accepted by the rejection sampler."""
    stock, plugin = (offline[kind]["speculative"] for kind in ("stock", "plugin"))
    assert len(stock["steps"]) < 12
    assert plugin["steps"] == stock["steps"]
    assert plugin["replies"] == stock["replies"]


def test_under_speculative_decoding_the_fields_are_refused_with_the_reason(offline: Any) -> None:
    refused = offline["plugin"]["speculative"]["refused"]
    assert len(refused) == 2
    for message in refused:
        assert message.startswith("VLLMValidationError")
        assert "speculative decoding" in message
