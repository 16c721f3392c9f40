"""What the requests of OpenAI's chat wires share."""

from __future__ import annotations

from logproof.dialects.common.openai_request import bias


def test_whole_biases_are_integers() -> None:
    assert repr(bias({5: 2.0, 6: 0.5})) == "{'5': 2, '6': 0.5}"
