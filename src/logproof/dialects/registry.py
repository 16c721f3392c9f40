"""The dialects by id. Adding one takes a package here and a line in `BUILT_IN`, or an entry point of a package.

A class is imported when it is asked for. Third parties register theirs under the entry point group
`logproof.dialects`, name = id; a name that is taken by a built-in is an error.
"""

from __future__ import annotations

import difflib
from importlib import import_module
from importlib.metadata import entry_points

from logproof.dialects.dialect import Dialect
from logproof.errors import UsageError
from logproof.ir.facts import Facts

BUILT_IN = {
    "openai_chat": "OpenAIChat",
    "openai_completions": "OpenAICompletions",
    "openai_responses": "OpenAIResponses",
    "anthropic_messages": "AnthropicMessages",
    "google_genai": "GoogleGenAI",
    "sglang_native": "SGLangNative",
    "vllm_native": "VLLMNative",
}
"""id, which is also the package's name here -> class, in its `__init__.py`."""

GROUP = "logproof.dialects"


def dialect_ids() -> tuple[str, ...]:
    """All known ids, built in and registered, sorted."""
    return tuple(sorted({*BUILT_IN, *(e.name for e in entry_points(group=GROUP))}))


def get_dialect(dialect_id: str) -> Dialect:
    """The dialect of an id. Raises UsageError for an unknown id or a registration that is no dialect."""
    if dialect_id in BUILT_IN:
        loaded: object = getattr(import_module(f"logproof.dialects.{dialect_id}"), BUILT_IN[dialect_id])
    else:
        found = [e for e in entry_points(group=GROUP) if e.name == dialect_id]
        if not found:
            near = difflib.get_close_matches(dialect_id, dialect_ids(), n=1)
            raise UsageError(f"unknown dialect {dialect_id!r}", hint=f"did you mean {near[0]}?" if near else _known())
        loaded = found[0].load()
    dialect = loaded() if isinstance(loaded, type) else loaded
    if not isinstance(dialect, Dialect) or dialect.id != dialect_id:
        raise UsageError(f"the entry point {dialect_id!r} does not give a dialect of that id")
    return dialect


def _known() -> str:
    return f"known dialects: {', '.join(dialect_ids())}"


FITTING = {
    "vllm": ("vllm_native", "openai_completions", "openai_chat", "openai_responses", "anthropic_messages"),
    "sglang": ("sglang_native", "openai_chat", "openai_completions", "openai_responses", "anthropic_messages"),
    "llama.cpp": ("openai_chat", "openai_completions"),
    "tgi": ("openai_chat", "openai_completions"),
    "openai": ("openai_responses", "openai_chat", "openai_completions"),
    "anthropic": ("anthropic_messages",),
    "gemini": ("google_genai",),
    "litellm": ("openai_chat", "openai_completions", "google_genai", "anthropic_messages", "openai_responses"),
}
"""Kind of endpoint -> dialects that it speaks, the best for scoring first."""


def fitting(facts: Facts) -> tuple[str, ...]:
    """Ids of the dialects that an endpoint speaks, the best for scoring first; empty where unknown."""
    return FITTING.get(facts.engine or "", ())
