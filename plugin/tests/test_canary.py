"""The canary's list and its verdict."""

from __future__ import annotations

import random

from logproof_vllm import canary


def test_the_canary_tells_every_way_of_not_enforcing() -> None:
    good = [-1.0, -2.0, -3.0, -0.5]
    assert canary.verdict([1, 2, 3], [1, 2, 3, 9], good) == "passed"
    assert "did not enforce" in canary.verdict([1, 2, 3], [1, 5, 3, 9], good)
    assert "did not enforce" in canary.verdict([1, 2, 3], [1, 2], good)
    assert "0 tokens followed" in canary.verdict([1, 2, 3], [1, 2, 3], good[:3])
    assert "finite" in canary.verdict([1, 2, 3], [1, 2, 3, 9], [*good[:3], float("-inf")])
    assert "finite" in canary.verdict([1, 2, 3], [1, 2, 3, 9], good[:3])


def test_the_canary_has_an_eos_inside_its_list() -> None:
    ids = canary.pick(50, 7, random.Random(1))
    assert ids[1] == 7
    assert len(ids) == canary.LENGTH
    assert all(0 <= i < 50 for i in ids)
    assert len(canary.pick(50, None, random.Random(1))) == canary.LENGTH
