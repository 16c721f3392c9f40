"""Digests of requests: what counts as the same request."""

from __future__ import annotations

import pytest

from logproof.errors import ArtifactError
from logproof.verify.artifact.known_request import request_digest


def test_the_order_of_keys_does_not_count_and_every_value_does() -> None:
    base = request_digest("/v1/completions", {"prompt": "a", "temperature": 1.0})
    assert request_digest("/v1/completions", {"temperature": 1.0, "prompt": "a"}) == base
    others = [
        ("/v1/chat/completions", {"prompt": "a", "temperature": 1.0}),
        ("/v1/completions", {"prompt": "a", "temperature": 1.0000000000000002}),
        ("/v1/completions", {"prompt": "b", "temperature": 1.0}),
        ("/v1/completions", {"prompt": "a"}),
        ("/v1/completions", None),
    ]
    assert base not in {request_digest(path, body) for path, body in others}


def test_a_number_that_is_not_finite_has_no_digest() -> None:
    with pytest.raises(ArtifactError):
        request_digest("/v1/completions", {"temperature": float("nan")})
