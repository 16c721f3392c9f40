"""A streamed /v1/completions reply, rebuilt as the plain one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from logproof.dialects.common.completions import CompletionsBody, CompletionsChoice, CompletionsLogprobs
from logproof.dialects.common.openai_reply import OpenAIUsage
from logproof.dialects.common.openai_stream import finished, read_chunks
from logproof.errors import BadReply
from logproof.http.exchange import SseEvent


class CompletionsChunk(msgspec.Struct, gc=False):
    """One event of a stream; its choices hold deltas."""

    choices: list[CompletionsChoice] = []
    id: str | None = None
    model: str | None = None
    system_fingerprint: str | None = None
    usage: OpenAIUsage | None = None


_CHUNK = msgspec.json.Decoder(CompletionsChunk)


def assemble(events: Sequence[SseEvent]) -> bytes:
    """Rebuild the plain reply from a stream: texts, ids and logprob lists of each choice are joined in order.

    The usage may come in any event. Raises BadReply for a stream without `[DONE]`, or whose choices did not
    all finish; StatusError for an error object inside it.
    """
    whole = CompletionsBody(choices=[])
    by_index: dict[int, CompletionsChoice] = {}
    for chunk in read_chunks(events, _CHUNK):
        whole.id, whole.model = chunk.id or whole.id, chunk.model or whole.model
        whole.system_fingerprint = chunk.system_fingerprint or whole.system_fingerprint
        whole.usage = chunk.usage or whole.usage
        for delta in chunk.choices:
            _append(by_index, delta)
    whole.choices = finished(by_index)
    return msgspec.json.encode(whole)


def _append(by_index: dict[int, CompletionsChoice], delta: CompletionsChoice) -> None:
    if delta.index is None:
        raise BadReply("a streamed choice without index", path="/choices")
    whole = by_index.setdefault(delta.index, CompletionsChoice(text="", index=delta.index))
    if whole.finish_reason is not None and delta.text:
        raise BadReply("text after a choice had finished", path=f"/choices/{delta.index}")
    whole.text += delta.text
    whole.finish_reason = delta.finish_reason or whole.finish_reason
    whole.stop_reason = delta.stop_reason if delta.stop_reason is not None else whole.stop_reason
    whole.matched_stop = delta.matched_stop if delta.matched_stop is not msgspec.UNSET else whole.matched_stop
    whole.prompt_token_ids = delta.prompt_token_ids or whole.prompt_token_ids
    if delta.token_ids is not None:
        whole.token_ids = (whole.token_ids or []) + delta.token_ids
    if delta.logprobs is not None:
        whole.logprobs = _joined(whole.logprobs, delta.logprobs)


def _joined(whole: CompletionsLogprobs | None, delta: CompletionsLogprobs) -> CompletionsLogprobs:
    if whole is None:
        return delta
    return CompletionsLogprobs(
        tokens=(whole.tokens or []) + (delta.tokens or []),
        token_logprobs=(whole.token_logprobs or []) + (delta.token_logprobs or []),
        top_logprobs=(whole.top_logprobs or []) + (delta.top_logprobs or []),
        text_offset=(whole.text_offset or []) + (delta.text_offset or []),
        content=delta.content or whole.content,
    )
