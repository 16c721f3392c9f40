"""SGLang's event stream, rebuilt to the plain reply.

Each event holds one choice. By default its texts and lists are cumulative; a server started for incremental
output sends deltas of the output side, while prompt lists and counts stay whole. The two are told apart by
ids against `completion_tokens`, which counts from the start in both.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from logproof.dialects.common.decode import decode
from logproof.dialects.sglang_native.entries import GenerateBody, Meta
from logproof.errors import BadReply
from logproof.http.exchange import SseEvent
from logproof.http.faults import error_in_body

_EVENT = msgspec.json.Decoder(GenerateBody)

OUTPUT_LISTS = ("output_token_logprobs", "output_top_logprobs", "output_token_ids_logprobs")
INPUT_LISTS = ("input_token_logprobs", "input_top_logprobs")


def assemble(events: Sequence[SseEvent]) -> bytes:
    """The plain reply: one object, or a list by index where several choices came.

    Raises BadReply for a stream without `[DONE]`, an event that fits neither form, or a choice that did not
    finish; StatusError for an error object inside the stream.
    """
    choices: dict[int, GenerateBody] = {}
    ended = False
    for i, event in enumerate(events):
        fault = error_in_body(event.data)
        if fault is not None:
            raise fault
        if ended:
            raise BadReply("events after the [DONE] mark", path=f"/events/{i}")
        if event.data == "[DONE]":
            ended = True
            continue
        chunk = decode(_EVENT, event.data.encode())
        index = chunk.index or 0
        choices[index] = _merged(choices.get(index), chunk, f"/events/{i}")
    if not ended:
        raise BadReply("the stream ended before its [DONE] mark: it was cut", hint="send the request again")
    _check_whole(choices)
    ordered = [choices[i] for i in sorted(choices)]
    return msgspec.json.encode(ordered[0] if len(ordered) == 1 else ordered)


def _check_whole(choices: dict[int, GenerateBody]) -> None:
    if sorted(choices) != list(range(len(choices))) or not choices:
        raise BadReply(f"the stream holds choices {sorted(choices)}", path="/events")
    unfinished = [i for i, c in choices.items() if c.meta_info.finish_reason is None]
    if unfinished:
        raise BadReply(f"the stream ended before choices {unfinished} finished", hint="send the request again")


def _merged(whole: GenerateBody | None, chunk: GenerateBody, path: str) -> GenerateBody:
    """The choice so far with one more event."""
    ids, count = chunk.output_ids, chunk.meta_info.completion_tokens
    if whole is None:
        if len(ids) != count:
            raise BadReply(f"{len(ids)} ids in the first event of {count} tokens", path=path)
        return chunk
    if whole.meta_info.finish_reason is not None:
        raise BadReply("an event after its choice had finished", path=path)
    _check_prompt(whole.meta_info, chunk.meta_info, path)
    before = whole.output_ids
    if len(ids) == count and ids[: len(before)] == before:
        return chunk
    if len(before) + len(ids) == count:
        return _appended(whole, chunk)
    raise BadReply(f"{len(ids)} ids after {len(before)}, while {count} tokens are counted", path=path)


def _check_prompt(whole: Meta, chunk: Meta, path: str) -> None:
    if whole.prompt_tokens != chunk.prompt_tokens:
        raise BadReply("the prompt's length changed within the stream", path=f"{path}/meta_info/prompt_tokens")
    for name in INPUT_LISTS:
        was, found = getattr(whole, name), getattr(chunk, name)
        if found is None:
            setattr(chunk, name, was)
        elif was is not None and was != found:
            raise BadReply("the prompt's logprobs changed within the stream", path=f"{path}/meta_info/{name}")


def _appended(whole: GenerateBody, chunk: GenerateBody) -> GenerateBody:
    chunk.output_ids = whole.output_ids + chunk.output_ids
    if whole.text is not None or chunk.text is not None:
        chunk.text = (whole.text or "") + (chunk.text or "")
    chunk.prompt_token_ids = chunk.prompt_token_ids or whole.prompt_token_ids
    for name in OUTPUT_LISTS:
        was, found = getattr(whole.meta_info, name), getattr(chunk.meta_info, name)
        if was is not None or found is not None:
            setattr(chunk.meta_info, name, (was or []) + (found or []))
    return chunk
