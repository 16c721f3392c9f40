"""`logproof dialects`: capabilities, leaves and reasons."""

from __future__ import annotations

from cli.calling import Cli

PROMPT = "The capital of France is"


def test_dialects_shows_capabilities_leaves_and_reasons(cli: Cli) -> None:
    assert cli("dialects", "vllm_native") == 0
    assert "vLLM answers 400 to any suffix" in cli.out
    found = cli.json("dialects", "vllm_native")
    assert found["capabilities"]["input_scoring"] == {"vllm_native": {"vllm": None}}
    assert found["leaves"]["model"]["vllm_native"]["vllm"][0]["kind"] == "sent"


def test_dialects_of_all(cli: Cli) -> None:
    assert cli("dialects", "--leaves") == 0
    assert "input_scoring" in cli.out
    assert "by value" in cli.out
