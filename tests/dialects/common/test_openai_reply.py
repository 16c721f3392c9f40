"""What the replies of OpenAI's wires share."""

from __future__ import annotations

import pytest

from logproof.dialects.common.openai_reply import breakdown
from logproof.errors import BadReply


def test_breakdown_keeps_unreported_apart_from_zero() -> None:
    assert breakdown(None, None) == ({}, None)
    assert breakdown({"cached_tokens": None}, {"reasoning_tokens": 0}) == (
        {"reasoning": 0},
        {"completion": {"reasoning_tokens": 0}},
    )
    prompt = {"cached_tokens": 4, "created_cache_tokens": 2, "audio_tokens": 1}
    assert breakdown(prompt, None) == ({"cached": 4, "cache_write": 2}, {"prompt": prompt})
    assert breakdown({"cache_write_tokens": 3, "created_cache_tokens": 2}, None)[0] == {"cache_write": 3}
    for wrong in (-1, True, "3"):
        with pytest.raises(BadReply, match="no count"):
            breakdown({"cached_tokens": wrong}, None)
