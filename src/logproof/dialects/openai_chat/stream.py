"""A streamed chat reply, rebuilt as the plain one.

Texts, ids, logprob lists and call arguments of each choice are joined in order and once, at the end: servers
hold text back while ids pass, so that nothing in one chunk belongs together.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from logproof.dialects.common.openai_reply import OpenAIUsage
from logproof.dialects.common.openai_scores import ScoredToken
from logproof.dialects.common.openai_stream import finished, read_chunks
from logproof.dialects.openai_chat.reply import (
    CalledFunction,
    ChatBody,
    ChatChoice,
    ChatLogprobs,
    ChatMessage,
    ToolCall,
)
from logproof.errors import BadReply
from logproof.http.exchange import SseEvent


class ChatDelta(msgspec.Struct, gc=False):
    """One choice's share of a chunk."""

    delta: ChatMessage
    index: int | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    matched_stop: str | int | msgspec.UnsetType | None = msgspec.UNSET
    logprobs: ChatLogprobs | None = None
    token_ids: list[int] | None = None


class ChatChunk(msgspec.Struct, gc=False):
    """One event of the stream. `choices` is empty in the chunk that brings the usage."""

    choices: list[ChatDelta]
    id: str | None = None
    model: str | None = None
    system_fingerprint: str | None = None
    service_tier: str | None = None
    usage: OpenAIUsage | None = None
    metadata: dict[str, object] | None = None
    prompt_token_ids: list[int] | None = None


_CHUNK = msgspec.json.Decoder(ChatChunk)


def assemble(events: Sequence[SseEvent]) -> bytes:
    """Rebuild the plain reply; the usage may come in any chunk.

    Raises BadReply for a stream without `[DONE]`, with a choice that did not finish or went on afterwards, or
    with a broken chunk; StatusError for an error object inside it.
    """
    whole = ChatBody(choices=[])
    by_index: dict[int, ChatChoice] = {}
    for chunk in read_chunks(events, _CHUNK):
        for name in ("id", "model", "system_fingerprint", "service_tier", "usage", "metadata", "prompt_token_ids"):
            value = getattr(chunk, name)
            if value is not None:
                setattr(whole, name, value)
        for delta in chunk.choices:
            _append(by_index, delta)
    whole.choices = finished(by_index)
    return msgspec.json.encode(whole)


def _append(by_index: dict[int, ChatChoice], delta: ChatDelta) -> None:
    if delta.index is None:
        raise BadReply("a streamed choice without index", path="/choices")
    whole = by_index.setdefault(delta.index, ChatChoice(ChatMessage(), index=delta.index))
    path = f"/choices/{delta.index}"
    if whole.finish_reason is not None and (delta.delta.content or delta.delta.tool_calls or delta.token_ids):
        raise BadReply("the choice went on after it had finished", path=path)
    _join_message(whole.message, delta.delta, path)
    whole.finish_reason = delta.finish_reason or whole.finish_reason
    whole.stop_reason = delta.stop_reason if delta.stop_reason is not None else whole.stop_reason
    if delta.matched_stop is not msgspec.UNSET:
        known = whole.matched_stop is not msgspec.UNSET and whole.matched_stop is not None
        whole.matched_stop = whole.matched_stop if known else delta.matched_stop
    if delta.token_ids is not None:
        whole.token_ids = (whole.token_ids or []) + delta.token_ids
    if delta.logprobs is not None:
        whole.logprobs = _joined(whole.logprobs or ChatLogprobs(), delta.logprobs)


def _join_message(whole: ChatMessage, delta: ChatMessage, path: str) -> None:
    for name in ("content", "refusal", "reasoning", "reasoning_content"):
        piece = getattr(delta, name)
        if piece is not None:
            setattr(whole, name, (getattr(whole, name) or "") + piece)
    if delta.annotations:
        whole.annotations = (whole.annotations or []) + delta.annotations
    whole.function_call = delta.function_call if delta.function_call is not None else whole.function_call
    for call in delta.tool_calls or ():
        whole.tool_calls = whole.tool_calls or []
        _join_call(whole.tool_calls, call, f"{path}/message/tool_calls")


def _join_call(calls: list[ToolCall], delta: ToolCall, path: str) -> None:
    """Merge by index: id, type and name come once, the arguments in pieces."""
    if delta.index is None or not 0 <= delta.index <= len(calls):
        raise BadReply(f"a streamed call of index {delta.index} after {len(calls)} calls", path=path)
    if delta.index == len(calls):
        calls.append(ToolCall(CalledFunction(), index=delta.index))
    call = calls[delta.index]
    function = call.function or CalledFunction()
    call.id, call.type = call.id or delta.id, call.type or delta.type
    if delta.function is not None:
        function.name = function.name or delta.function.name
        function.arguments = (function.arguments or "") + (delta.function.arguments or "")


def _joined(whole: ChatLogprobs, delta: ChatLogprobs) -> ChatLogprobs:
    return ChatLogprobs(
        content=_list(whole.content, delta.content),
        refusal=_list(whole.refusal, delta.refusal),
        tokens=delta.tokens if delta.tokens is not None else whole.tokens,
    )


def _list(whole: list[ScoredToken] | None, delta: list[ScoredToken] | None) -> list[ScoredToken] | None:
    return whole if delta is None else (whole or []) + delta
