"""Leaves that wires of one kind have no place for, each with the dialect that has one."""

from __future__ import annotations

from collections.abc import Mapping

TEXT_WIRE: Mapping[str, str] = {
    "input.messages": "this wire takes no chat messages; use openai_chat",
    "reasoning.effort": "this wire has no reasoning parser; use openai_chat",
    "reasoning.budget_tokens": "this wire has no reasoning parser; use openai_chat",
    "reasoning.summary": "this wire has no reasoning parser; use openai_responses",
    "tools.functions": "this wire has no tool parser; use openai_chat",
    "tools.hosted": "this wire has no hosted tools; use openai_responses",
    "tools.choice": "this wire has no tool parser; use openai_chat",
    "tools.parallel": "this wire has no tool parser; use openai_chat",
    "session.previous_response_id": "this wire keeps no session; use openai_responses",
    "session.store": "this wire keeps no session; use openai_responses",
}
"""A wire that takes a plain prompt."""

MESSAGE_WIRE: Mapping[str, str] = {
    "input.text": "this wire takes messages: set input.messages, or use vllm_native, sglang_native, openai_completions",
    "input.token_ids": "this wire takes chat messages; use vllm_native or sglang_native",
    "input.suffix": "this wire takes chat messages; use openai_completions",
}
"""A wire that takes messages."""

SCHEMA_WIRE: Mapping[str, str] = {
    "output.regex": "this wire has no regex; use output.json_schema, or vllm_native",
    "output.choice": "this wire has no choices; use output.json_schema with an enum, or vllm_native",
    "output.grammar": "this wire has no grammar; use vllm_native",
}
"""A wire whose only structure is JSON."""
