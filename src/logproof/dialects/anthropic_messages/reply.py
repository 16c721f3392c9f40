"""The Messages reply: content blocks to one choice, with the turn kept for sending it back.

Facts of the wire: `input_tokens` leaves out what the cache wrote or gave; thinking may be a summary, or empty with
a signature; a refusal is a stop reason of a 200. Blocks of kinds that this file does not know are kept whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from logproof.dialects.anthropic_messages.messages import CALL, CITATIONS, DIALECT, SIGNATURE
from logproof.dialects.common import structured
from logproof.dialects.common.decode import decode
from logproof.errors import BadReply
from logproof.ir.message import Opaque, OpaquePart, Part, ReasoningPart, TextPart, ToolCallPart
from logproof.ir.request import Request
from logproof.ir.response import Choice, Citation, Finish, FinishReason, HostedUse, Response, Usage


class MessagesCitation(msgspec.Struct, gc=False):
    """What all kinds of citations may hold."""

    type: str
    url: str | None = None
    title: str | None = None
    document_title: str | None = None


class MessagesBlock(msgspec.Struct, gc=False):
    """One content block of any type; `input` is empty where absent."""

    type: str
    text: str | None = None
    citations: list[MessagesCitation] | None = None
    thinking: str | None = None
    signature: str | None = None
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw = msgspec.Raw()


class Thinking(msgspec.Struct, gc=False):
    thinking_tokens: int | None = None


class MessagesUsage(msgspec.Struct, gc=False):
    """Token counts; input excludes both kinds of cached tokens."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens_details: Thinking | None = None
    cache_creation: dict[str, object] | None = None
    server_tool_use: dict[str, object] | None = None
    service_tier: str | None = None
    inference_geo: str | None = None
    speed: str | None = None

    def lifted(self) -> Usage:
        """Usage of the IR: the prompt with its cached tokens."""
        written, read = self.cache_creation_input_tokens, self.cache_read_input_tokens
        names = ("cache_creation", "server_tool_use", "service_tier", "inference_geo", "speed")
        details = {n: getattr(self, n) for n in names if getattr(self, n) is not None}
        return Usage(
            prompt=None if self.input_tokens is None else self.input_tokens + (written or 0) + (read or 0),
            completion=self.output_tokens,
            cached=read,
            cache_write=written,
            reasoning=self.output_tokens_details.thinking_tokens if self.output_tokens_details else None,
            details=details or None,
        )


class StopDetails(msgspec.Struct, gc=False):
    category: str | None = None
    explanation: str | None = None


class MessagesBody(msgspec.Struct, gc=False):
    """The whole reply."""

    content: list[msgspec.Raw]
    type: str = "message"
    id: str | None = None
    model: str | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: StopDetails | None = None
    usage: MessagesUsage | None = None
    container: dict[str, object] | None = None


_BODY = msgspec.json.Decoder(MessagesBody)
_BLOCK = msgspec.json.Decoder(MessagesBlock)
_OBJECT = msgspec.json.Decoder(dict[str, object])

_REASONS: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


def lift(request: Request, body: bytes) -> Response:
    """Read a plain reply. Raises BadReply for another shape or an unfinished turn, StatusError for an error object."""
    reply = decode(_BODY, body)
    if reply.stop_reason is None:
        raise BadReply("the turn did not finish", path="/stop_reason")
    blocks = [(decode(_BLOCK, bytes(raw), f"/content/{i}"), bytes(raw)) for i, raw in enumerate(reply.content)]
    finish = Finish(_REASONS.get(reply.stop_reason, "other"), reply.stop_reason, reply.stop_sequence)
    turn = tuple(
        _part(block, raw, i) for i, (block, raw) in enumerate(blocks) if block.type != "text" or block.text != ""
    )
    text = "".join(p.text for p in turn if isinstance(p, TextPart))
    choice = Choice(
        index=0,
        text=text,
        finish=finish,
        parsed=structured.parse(request.output, text, finish, "/content"),
        reasoning=_reasoning(turn),
        tool_calls=tuple(p for p in turn if isinstance(p, ToolCallPart)),
        hosted_uses=tuple(_uses(turn)),
        citations=tuple(_citations(turn)),
        opaque=tuple(_blobs(turn)),
        refusal=_refusal(reply),
        turn=turn,
    )
    return Response(
        choices=(choice,),
        usage=reply.usage.lifted() if reply.usage else Usage(),
        model=reply.model,
        response_id=reply.id,
        metadata={"container": reply.container} if reply.container is not None else {},
        notes=_notes(reply, choice),
    )


def _part(block: MessagesBlock, raw: bytes, index: int) -> Part:
    """The part of the turn that a block is. Raises BadReply for a block without what its type promises."""
    path = f"/content/{index}"
    match block.type:
        case "text":
            cited = _fields(raw).get("citations")
            return TextPart(_held(block.text, f"{path}/text"), _blob(CITATIONS, cited) if cited else None)
        case "thinking":
            signature = _blob(SIGNATURE, block.signature) if block.signature else None
            return ReasoningPart(_held(block.thinking, f"{path}/thinking"), signature)
        case "tool_use":
            if not bytes(block.input):
                raise BadReply("a call without arguments", path=f"{path}/input")
            more = {k: v for k, v in _fields(raw).items() if k not in ("type", "id", "name", "input") and v is not None}
            return ToolCallPart(
                id=_held(block.id, f"{path}/id"),
                name=_held(block.name, f"{path}/name"),
                arguments=bytes(block.input).decode(),
                opaque=_blob(CALL, more) if more else None,
            )
    return OpaquePart(_blob(block.type, _fields(raw)))


def _held(value: str | None, path: str) -> str:
    if value is None:
        raise BadReply("the block lacks what its type promises", path=path)
    return value


def _fields(raw: bytes) -> dict[str, object]:
    return _OBJECT.decode(raw)


def _blob(kind: str, value: object) -> Opaque:
    return Opaque(DIALECT, kind, value)


def _reasoning(turn: Sequence[Part]) -> str | None:
    found = [p.text for p in turn if isinstance(p, ReasoningPart)]
    return "\n\n".join(t for t in found if t) if found else None


def _uses(turn: Sequence[Part]) -> list[HostedUse]:
    """Calls and results of tools that the provider ran; other whole blocks are only kept in the turn."""
    blobs = [p.opaque for p in turn if isinstance(p, OpaquePart)]
    return [HostedUse(b.kind, b.blob) for b in blobs if b.kind == "server_tool_use" or b.kind.endswith("_tool_result")]


def _citations(turn: Sequence[Part]) -> list[Citation]:
    found: list[Citation] = []
    at = 0
    for part in turn:
        if not isinstance(part, TextPart):
            continue
        end = at + len(part.text)
        items = part.opaque.blob if part.opaque is not None and isinstance(part.opaque.blob, list) else []
        for item in items:
            cited = msgspec.convert(item, MessagesCitation)
            found.append(Citation(cited.type, cited.url, cited.title or cited.document_title, at, end, item))
        at = end
    return found


def _blobs(turn: Sequence[Part]) -> list[Opaque]:
    """Signatures and whole blocks, in order; citations are read and so are no blobs."""
    found = [getattr(p, "opaque", None) for p in turn]
    return [b for b in found if isinstance(b, Opaque) and b.kind != CITATIONS]


def _refusal(reply: MessagesBody) -> str | None:
    if reply.stop_reason != "refusal":
        return None
    details = reply.stop_details or StopDetails()
    return details.explanation or details.category or "refused without a reason"


def _notes(reply: MessagesBody, choice: Choice) -> tuple[str, ...]:
    spent = reply.usage.output_tokens if reply.usage else None
    silent = not (choice.text or choice.tool_calls or choice.reasoning or choice.opaque or choice.refusal)
    return (f"{spent} tokens were sampled and no text came",) if silent and spent else ()
