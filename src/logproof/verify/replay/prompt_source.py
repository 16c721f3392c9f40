"""What a request's prompt is made from: ids that it holds, texts, or chat messages; or why it cannot be made. Pure.

Nothing is guessed. A field that may change the prompt in a way that is not repeated here, one that is not known at
all, content that is not text, or a text in which a credential was blanked: each says why the prompt cannot be made,
since ids made wrongly would accuse an honest executor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeGuard

import msgspec

from logproof.dialects.openapi_fields import SGLANG, VLLM
from logproof.errors import REDACTED

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"
GENERATE = "/generate"
MOST_PROMPTS = 64
"""Prompts of one request that are made; a larger batch is not."""
MOST_CHARACTERS = 16 << 20
"""Longest text of one prompt that an engine is asked to tokenise, characters."""
MOST_IDS = 16 << 20
"""Longest prompt in ids that is read."""
MAX_ID = 2**31 - 1


class IdPrompts(msgspec.Struct, frozen=True):
    """Prompts that the request states in ids."""

    prompts: tuple[tuple[int, ...], ...]


class TextPrompts(msgspec.Struct, frozen=True):
    """Prompts in text. special: whether the tokenizer adds its special tokens, None where the request does not say."""

    texts: tuple[str, ...]
    special: bool | None = None


class ChatPrompt(msgspec.Struct, frozen=True):
    """A chat. messages: as the chat route takes them. options: fields of its template, by their names in the body."""

    messages: list[dict[str, object]]
    options: dict[str, object] = {}


class Unmakable(msgspec.Struct, frozen=True):
    """Why the prompt cannot be made, in words that follow "the prompt ids cannot be made:"."""

    reason: str


PromptSource = IdPrompts | TextPrompts | ChatPrompt | Unmakable

_READ: Mapping[str, frozenset[str]] = {
    COMPLETIONS: frozenset({"prompt", "add_special_tokens"}),
    GENERATE: frozenset({"text", "input_ids"}),
    CHAT: frozenset(
        {
            "messages",
            "tools",
            "tool_choice",
            "add_generation_prompt",
            "continue_final_message",
            "add_special_tokens",
            "documents",
            "chat_template_kwargs",
        }
    ),
    RESPONSES: frozenset({"input", "instructions", "chat_template_kwargs"}),
    MESSAGES: frozenset({"messages", "system", "chat_template_kwargs"}),
}
"""Fields of each route that the prompt is made from."""

_UNREPEATED = frozenset(
    {
        "truncate_prompt_tokens",
        "prompt_embeds",
        "input_embeds",
        "positional_embed_overrides",
        "multi_item_delimiter_indices",
        "token_indices_to_pool",
        "suffix",
        "mm_payload",
        "image_data",
        "video_data",
        "audio_data",
        "session_params",
        "chat_template",
        "reasoning",
        "reasoning_effort",
        "thinking",
        "task",
        "output_config",
        "tools",
        "tool_choice",
        "previous_response_id",
        "previous_input_messages",
        "prompt",
        "input_ids",
        "text",
        "betas",
    }
)
"""Fields that change a prompt where a route does not read them: the request is not made with any of them set."""

_INERT = frozenset(
    {
        "metadata",
        "model",
        "modalities",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "verbosity",
        "logprobs_mode",
    }
)
"""Fields that change no prompt, beside those that an engine lists: OpenAI's own, and the plugin's."""


_CHAT_OPTIONS = (
    "tools",
    "add_generation_prompt",
    "continue_final_message",
    "add_special_tokens",
    "documents",
    "chat_template_kwargs",
)
"""Fields of a chat that its template or the tokenizer reads."""


def prompt_source(path: str, body: object) -> PromptSource:
    """What the prompt of this request is made from. path: below the endpoint's root, without query."""
    read = _READERS.get(path)
    if read is None:
        return Unmakable(f"requests of {path} have none that this verifier makes")
    if not isinstance(body, dict):
        return Unmakable("the request's body is no JSON object")
    fields = {str(name): value for name, value in body.items() if value is not None}
    foreign = _foreign(path, fields)
    if foreign is not None:
        return Unmakable(foreign)
    source = read(fields)
    return Unmakable("a credential was blanked in it") if _blanked(source) else source


def _foreign(path: str, fields: Mapping[str, object]) -> str | None:
    """The field that keeps the prompt from being made, in words; None without one."""
    read = _READ[path]
    known = _INERT.union(VLLM.get(path, ()), SGLANG.get(path, ())) - _UNREPEATED
    if path == RESPONSES and fields.get("truncation") == "auto":
        return "truncation may cut it"
    for name, value in fields.items():
        if name in read or value is False or value in ("", [], {}):
            continue
        if path == RESPONSES and name == "text":
            # It holds the form of the answer there.
            continue
        if name == "tool_choice" and value in ("auto", "none"):
            # Without tools it chooses nothing.
            continue
        if name in _UNREPEATED:
            return f"{name} may change it"
        if name not in known:
            return f"what {name} does to it is not known"
    return None


def _completion(fields: Mapping[str, object]) -> PromptSource:
    special = fields.get("add_special_tokens")
    if special is not None and not isinstance(special, bool):
        return Unmakable("add_special_tokens is neither true nor false")
    return _texts_or_ids(fields.get("prompt"), special)


def _generate(fields: Mapping[str, object]) -> PromptSource:
    # SGLang takes the ids where both are sent.
    return _texts_or_ids(fields.get("input_ids", fields.get("text")), None)


def _texts_or_ids(prompt: object, special: bool | None) -> PromptSource:
    """A text or a list of ids, or several of one kind."""
    several = prompt if isinstance(prompt, list) and not _all_ids(prompt) else [prompt]
    if not 0 < len(several) <= MOST_PROMPTS:
        return Unmakable(f"it holds {len(several)} prompts; at most {MOST_PROMPTS} are made")
    if all(isinstance(p, str) and p for p in several):
        texts = tuple(str(p) for p in several)
        return _long(texts) or TextPrompts(texts, special)
    prompts = tuple(tuple(p) for p in several if _all_ids(p))
    return IdPrompts(prompts) if len(prompts) == len(several) else Unmakable("its prompt is neither text nor token ids")


def _all_ids(values: object) -> TypeGuard[list[int]]:
    return (
        isinstance(values, list)
        and 0 < len(values) <= MOST_IDS
        and all(type(v) is int and 0 <= v <= MAX_ID for v in values)
    )


def _chat(fields: Mapping[str, object]) -> PromptSource:
    messages = _messages(fields.get("messages"))
    if isinstance(messages, Unmakable):
        return messages
    choice = fields.get("tool_choice")
    if fields.get("tools") and choice not in (None, "auto"):
        return Unmakable(f"engines differ in what tool_choice {choice!r} leaves of the tools")
    options = {name: fields[name] for name in _CHAT_OPTIONS if fields.get(name) not in (None, [], {})}
    return _long(messages) or ChatPrompt(messages, options)


def _messages(value: object) -> list[dict[str, object]] | Unmakable:
    """Chat messages whose contents are texts, as they are."""
    if not isinstance(value, list) or not value or not all(isinstance(m, dict) for m in value):
        return Unmakable("its messages are no list of objects")
    for message in value:
        content = message.get("content")
        parts = content if isinstance(content, list) else []
        if not isinstance(message.get("role"), str) or not isinstance(content, str | list | None):
            return Unmakable("a message has no role, or a content that is no text")
        if not all(isinstance(p, dict) and p.get("type") == "text" and isinstance(p.get("text"), str) for p in parts):
            return Unmakable("a message holds parts that are not text")
    return value


def _responses(fields: Mapping[str, object]) -> PromptSource:
    """instructions as the system message, then the input: a text, or messages of one text each; the user's is last."""
    given = fields.get("input")
    turns = [{"role": "user", "content": given}] if isinstance(given, str) else given
    return _converted(fields.get("instructions") or None, turns, fields)


def _anthropic(fields: Mapping[str, object]) -> PromptSource:
    """system as the first message, then messages of one text each; the user's is last."""
    return _converted(fields.get("system") or None, fields.get("messages"), fields)


def _converted(system: object, turns: object, fields: Mapping[str, object]) -> PromptSource:
    """Chat messages of plain text turns: the only ones whose conversion is the same in every engine."""
    if not isinstance(turns, list) or not turns:
        return Unmakable("it holds no text turns")
    leading = None if system is None else _single_text(system)
    if system is not None and leading is None:
        return Unmakable("its instructions are not one text")
    messages: list[dict[str, object]] = [] if leading is None else [{"role": "system", "content": leading}]
    for turn in turns:
        text = _single_text(turn.get("content")) if isinstance(turn, dict) else None
        if text is None or turn.get("role") not in ("user", "assistant") or not turn.keys() <= _TURN_KEYS:
            return Unmakable("it holds turns that are not one text of the user or the assistant")
        messages.append({"role": turn["role"], "content": text})
    if messages[-1]["role"] != "user":
        return Unmakable("engines differ in how they continue an assistant's last turn")
    options = {n: fields[n] for n in ("chat_template_kwargs",) if n in fields}
    return _long(messages) or ChatPrompt(messages, options)


_TURN_KEYS = {"type", "role", "content"}
_TEXT_TYPES = ("text", "input_text", "output_text")


def _single_text(content: object) -> str | None:
    """The text of a content that is one text, None for any other."""
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        part = content[0]
        content = part.get("text") if part.get("type") in _TEXT_TYPES and part.keys() <= {"type", "text"} else None
    # One engine drops a system text of this beginning.
    wanted = isinstance(content, str) and content and not content.startswith("x-anthropic-billing-header")
    return str(content) if wanted else None


def _long(made_from: object) -> Unmakable | None:
    """Why these texts are too long to be tokenised; None where they are not."""
    size = len(msgspec.json.encode(made_from))
    return Unmakable(f"it has {size} bytes; the limit is {MOST_CHARACTERS}") if size > MOST_CHARACTERS else None


def _blanked(source: PromptSource) -> bool:
    """Whether a text of the prompt had a credential in it that is no longer there."""
    return isinstance(source, TextPrompts | ChatPrompt) and REDACTED.encode() in msgspec.json.encode(source)


_READERS: Mapping[str, Callable[[Mapping[str, object]], PromptSource]] = {
    COMPLETIONS: _completion,
    GENERATE: _generate,
    CHAT: _chat,
    RESPONSES: _responses,
    MESSAGES: _anthropic,
}
