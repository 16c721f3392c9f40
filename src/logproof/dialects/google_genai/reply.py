"""The generateContent reply: parts of candidates to choices, with each turn kept for sending it back.

Facts of the wire: thoughts are counted outside the candidates; a call ends with STOP; an absent index is 0; a
blocked prompt is a 200 without candidates. Spans are counted in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from logproof.dialects.common import structured
from logproof.dialects.common.decode import decode
from logproof.dialects.google_genai.grounding import lift_citations
from logproof.dialects.google_genai.logprobs_result import LogprobsResult, lift_logprobs
from logproof.dialects.google_genai.messages import DIALECT, SIGNATURE, UNNAMED
from logproof.errors import BadReply, ContentFiltered
from logproof.http.faults import error_in_body
from logproof.ir.message import Opaque, OpaquePart, Part, ReasoningPart, TextPart, ToolCallPart
from logproof.ir.request import Request
from logproof.ir.response import Choice, Finish, FinishReason, HostedUse, Response, Usage

GenAIPart = dict[str, msgspec.Raw]


class Content(msgspec.Struct, gc=False, omit_defaults=True):
    parts: list[GenAIPart] | None = None
    role: str | None = None


class Candidate(msgspec.Struct, gc=False, omit_defaults=True, rename="camel"):
    """One candidate; in a stream, what one event adds to it."""

    index: int | None = None
    content: Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None
    citation_metadata: dict[str, object] | None = None
    grounding_metadata: dict[str, object] | None = None
    url_context_metadata: dict[str, object] | None = None
    logprobs_result: LogprobsResult | None = None
    continuation_token: str | None = None


class Feedback(msgspec.Struct, gc=False, omit_defaults=True, rename="camel"):
    block_reason: str | None = None
    block_reason_message: str | None = None


class GenAIUsage(msgspec.Struct, gc=False, omit_defaults=True, rename="camel"):
    """Token counts; a count of 0 may be left out."""

    prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    total_token_count: int | None = None
    prompt_tokens_details: object = None
    cache_tokens_details: object = None
    candidates_tokens_details: object = None
    tool_use_prompt_tokens_details: object = None
    traffic_type: str | None = None

    def lifted(self) -> Usage:
        """Usage of the IR: completion with thoughts. Tool results that the provider put in stand in the details."""
        sampled = [n for n in (self.candidates_token_count, self.thoughts_token_count) if n is not None]
        names = (
            "tool_use_prompt_token_count",
            *(f for f in self.__struct_fields__ if f.endswith("_details")),
            "traffic_type",
        )
        details = {n: getattr(self, n) for n in names if getattr(self, n) is not None}
        return Usage(
            prompt=self.prompt_token_count,
            completion=sum(sampled) if sampled else None,
            total=self.total_token_count,
            cached=self.cached_content_token_count,
            reasoning=self.thoughts_token_count,
            details=details or None,
        )


class GenAIBody(msgspec.Struct, gc=False, omit_defaults=True, rename="camel"):
    """The whole reply, or one event of a stream."""

    candidates: list[Candidate] | None = None
    prompt_feedback: Feedback | None = None
    usage_metadata: GenAIUsage | None = None
    model_version: str | None = None
    response_id: str | None = None
    model_status: dict[str, object] | None = None


BODY = msgspec.json.Decoder(GenAIBody)
_TEXT = msgspec.json.Decoder(str)
_VALUE = msgspec.json.Decoder(object)


class GenAICall(msgspec.Struct, gc=False):
    """A functionCall; `args` is empty where absent."""

    name: str
    id: str | None = None
    args: msgspec.Raw = msgspec.Raw()


_CALL = msgspec.json.Decoder(GenAICall)

_FILTERS = (
    "SAFETY",
    "RECITATION",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_RECITATION",
    "MODEL_ARMOR",
)
_ERRORS = (
    "MALFORMED_FUNCTION_CALL",
    "MALFORMED_RESPONSE",
    "MISSING_THOUGHT_SIGNATURE",
    "TOO_MANY_TOOL_CALLS",
    "UNEXPECTED_TOOL_CALL",
)
_REASONS: dict[str, FinishReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    **dict.fromkeys(_FILTERS, "content_filter"),
    **dict.fromkeys(_ERRORS, "error"),
}

_USES = ("executableCode", "codeExecutionResult", "toolCall", "toolResponse")
"""Parts that tell of a tool which the provider ran."""


def lift(request: Request, body: bytes) -> Response:
    """Read a plain reply.

    Raises ContentFiltered for a blocked prompt, BadReply for another shape, no candidates or an unfinished one,
    StatusError for an error object.
    """
    reply = decode(BODY, body)
    candidates = sorted(reply.candidates or (), key=lambda c: c.index or 0)
    if not candidates:
        raise error_in_body(body.decode(errors="replace")) or _blocked(reply.prompt_feedback)
    choices = tuple(_lift_candidate(request, c, f"/candidates/{c.index or 0}") for c in candidates)
    return Response(
        choices=choices,
        usage=reply.usage_metadata.lifted() if reply.usage_metadata else Usage(),
        model=reply.model_version,
        response_id=reply.response_id,
        metadata=_metadata(reply, candidates),
        notes=_notes(request, reply, choices),
    )


def _blocked(feedback: Feedback | None) -> Exception:
    if feedback is None or feedback.block_reason is None:
        return BadReply("the reply holds no candidates", path="/candidates")
    message = feedback.block_reason_message or "no reason given"
    return ContentFiltered(200, f"the prompt was blocked: {message}", code=feedback.block_reason)


def _lift_candidate(request: Request, wire: Candidate, path: str) -> Choice:
    if wire.finish_reason is None:
        raise BadReply("the candidate did not finish", path=f"{path}/finishReason")
    parts = (wire.content.parts if wire.content else None) or []
    turn = [_part(p, i, f"{path}/content/parts/{i}") for i, p in enumerate(parts)]
    text = "".join(p.text for p in turn if isinstance(p, TextPart))
    calls = tuple(p for p in turn if isinstance(p, ToolCallPart))
    reason = _REASONS.get(wire.finish_reason, "other")
    finish = Finish("tool_calls" if calls and reason == "stop" else reason, wire.finish_reason)
    thoughts = [p.text for p in turn if isinstance(p, ReasoningPart)]
    return Choice(
        index=wire.index or 0,
        text=text,
        finish=finish,
        tokens=lift_logprobs(request, wire.logprobs_result, f"{path}/logprobsResult"),
        parsed=structured.parse(request.output, text, finish, f"{path}/content"),
        reasoning="".join(thoughts) if thoughts else None,
        tool_calls=calls,
        hosted_uses=tuple(_uses(turn)),
        citations=tuple(lift_citations(wire.citation_metadata, wire.grounding_metadata, turn)),
        grounding=wire.grounding_metadata,
        opaque=tuple(_blobs(turn, wire.continuation_token)),
        turn=tuple(p for p in turn if not (isinstance(p, TextPart) and not p.text and p.opaque is None)),
    )


def _part(wire: GenAIPart, index: int, path: str) -> Part:
    raw_signature = wire.get(SIGNATURE)
    signature = (
        Opaque(DIALECT, SIGNATURE, decode(_TEXT, bytes(raw_signature), path)) if raw_signature is not None else None
    )
    if "text" in wire:
        text = decode(_TEXT, bytes(wire["text"]), f"{path}/text")
        thought = "thought" in wire and bytes(wire["thought"]) == b"true"
        return ReasoningPart(text, signature) if thought else TextPart(text, signature)
    if "functionCall" in wire:
        call = decode(_CALL, bytes(wire["functionCall"]), f"{path}/functionCall")
        arguments = bytes(call.args).decode() or "{}"
        return ToolCallPart(call.id or f"{UNNAMED}{index}", call.name, arguments, signature)
    kind = next((k for k in wire if k not in (SIGNATURE, "thought")), "part")
    return OpaquePart(Opaque(DIALECT, kind, {k: _VALUE.decode(bytes(v)) for k, v in wire.items()}))


def _uses(turn: Sequence[Part]) -> list[HostedUse]:
    blobs = [p.opaque for p in turn if isinstance(p, OpaquePart)]
    return [HostedUse(b.kind, b.blob) for b in blobs if b.kind in _USES]


def _blobs(turn: Sequence[Part], token: str | None) -> list[Opaque]:
    found = [getattr(p, "opaque", None) for p in turn]
    blobs = [b for b in found if isinstance(b, Opaque)]
    return blobs if token is None else [*blobs, Opaque(DIALECT, "continuationToken", token)]


def _metadata(reply: GenAIBody, candidates: Sequence[Candidate]) -> dict[str, object]:
    found: dict[str, object] = {}
    if reply.model_status is not None:
        found["modelStatus"] = reply.model_status
    contexts = [c.url_context_metadata for c in candidates if c.url_context_metadata is not None]
    if contexts:
        found["urlContextMetadata"] = contexts
    return found


def _notes(request: Request, reply: GenAIBody, choices: Sequence[Choice]) -> tuple[str, ...]:
    messages = [c.finish_message for c in reply.candidates or () if c.finish_message]
    notes = [f"the server says of the end: {m[:200]}" for m in messages]
    unproven = [n for n in ("seed", "top_k", "n") if getattr(request.sampling, n) is not None]
    if reply.model_version is None and unproven:
        notes.append(f"unconfirmed, as a gateway may drop it: {', '.join(f'sampling.{n}' for n in unproven)}")
    spent = reply.usage_metadata.candidates_token_count if reply.usage_metadata else None
    if spent and not any(c.text or c.turn for c in choices):
        notes.append(f"{spent} tokens were sampled and no text came")
    return tuple(notes)
