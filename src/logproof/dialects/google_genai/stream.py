"""The streamGenerateContent events, rebuilt to the plain reply.

Each event is a whole reply that holds what is new; there is no end mark, so a stream is whole when every candidate
has its finish reason. Texts that follow one another become one part, unless a signature stands between them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from logproof.dialects.common.decode import decode
from logproof.dialects.google_genai.logprobs_result import LogprobsResult
from logproof.dialects.google_genai.messages import SIGNATURE
from logproof.dialects.google_genai.reply import BODY, Candidate, Content, GenAIBody, GenAIPart
from logproof.errors import BadReply
from logproof.http.exchange import SseEvent
from logproof.http.faults import error_in_body

_TEXT = msgspec.json.Decoder(str)


def assemble(events: Sequence[SseEvent]) -> bytes:
    """The plain reply.

    Raises BadReply for a stream that ends before its candidates finished or goes on after that, StatusError for
    an error object in it.
    """
    whole = GenAIBody()
    candidates: dict[int, Candidate] = {}
    for i, event in enumerate(events):
        fault = error_in_body(event.data)
        if fault is not None:
            raise fault
        if event.data == "[DONE]":
            continue
        found = decode(BODY, event.data.encode())
        _keep_latest(whole, found)
        for part in found.candidates or ():
            _add(candidates.setdefault(part.index or 0, Candidate(index=part.index or 0)), part, f"/events/{i}")
    unfinished = [i for i, c in candidates.items() if c.finish_reason is None]
    if unfinished or (not candidates and whole.prompt_feedback is None):
        raise BadReply("the stream ended before its candidates finished: it was cut", hint="send the request again")
    whole.candidates = [candidates[i] for i in sorted(candidates)]
    return msgspec.json.encode(whole)


def _keep_latest(whole: GenAIBody, found: GenAIBody) -> None:
    for name in ("prompt_feedback", "usage_metadata", "model_version", "response_id", "model_status"):
        value = getattr(found, name)
        if value is not None:
            setattr(whole, name, value)


_LATEST = (
    "finish_reason",
    "finish_message",
    "citation_metadata",
    "grounding_metadata",
    "url_context_metadata",
    "continuation_token",
)


def _add(whole: Candidate, found: Candidate, path: str) -> None:
    parts = (found.content.parts if found.content else None) or []
    if whole.finish_reason is not None and parts:
        raise BadReply("parts after the candidate had finished", path=path)
    for name in _LATEST:
        value = getattr(found, name)
        if value is not None:
            setattr(whole, name, value)
    if found.content is not None:
        joined = (whole.content.parts if whole.content else None) or []
        for part in parts:
            _append(joined, part)
        whole.content = Content(parts=joined, role=found.content.role)
    if found.logprobs_result is not None:
        before = whole.logprobs_result
        whole.logprobs_result = _joined(before, found.logprobs_result) if before else found.logprobs_result


def _append(parts: list[GenAIPart], part: GenAIPart) -> None:
    last = parts[-1] if parts else None
    if last is not None and _plain_text(last) and _plain_text(part) and _thought(last) == _thought(part):
        text = _TEXT.decode(bytes(last["text"])) + _TEXT.decode(bytes(part["text"]))
        parts[-1] = {**last, "text": msgspec.Raw(msgspec.json.encode(text))}
    else:
        parts.append(part)


def _plain_text(part: GenAIPart) -> bool:
    return set(part) <= {"text", "thought"} and "text" in part and SIGNATURE not in part


def _thought(part: GenAIPart) -> bytes:
    return bytes(part["thought"]) if "thought" in part else b"false"


def _joined(whole: LogprobsResult, found: LogprobsResult) -> LogprobsResult:
    """Steps in order. A sum is left out: nothing says whether one of a later event counts from the start."""
    return LogprobsResult(
        chosen_candidates=[*whole.chosen_candidates, *found.chosen_candidates],
        top_candidates=[*whole.top_candidates, *found.top_candidates],
    )
