"""The reply of the Responses wire and what it lifts to: one choice out of an ordered list of items.

vLLM names the sampled ids in `output_messages` where `enable_response_messages` asked for them. Its streams leave
out the logprobs of tokens that show no text, which the count of tokens reveals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from logproof.dialects.common import logprobs, openai_scores, structured
from logproof.dialects.common.decode import decode, split_path
from logproof.dialects.common.openai_reply import Count, breakdown, check_forced, lift_citation
from logproof.dialects.common.openai_scores import ScoredToken, Server
from logproof.dialects.openai_responses.messages import DIALECT, message_text, reasoning_text
from logproof.errors import BadReply, MissingChannel, OutputContractError, ServerFault, clip
from logproof.http.faults import error_in_body
from logproof.ir.message import Opaque, OpaquePart, Part, ReasoningPart, TextPart, ToolCallPart
from logproof.ir.request import Request
from logproof.ir.response import Choice, Citation, Finish, FinishReason, HostedUse, Ids, Response, Tokens, Usage

Item = dict[str, object]
T = TypeVar("T")


class ContentPart(msgspec.Struct, gc=False):
    """One part of a message: `output_text` or `refusal`."""

    type: str
    text: str | None = None
    refusal: str | None = None
    annotations: list[dict[str, object]] | None = None
    logprobs: list[ScoredToken] | None = None


class MessageItem(msgspec.Struct, gc=False):
    """A message of the model."""

    content: list[ContentPart]


class CallItem(msgspec.Struct, gc=False):
    """A function call; `call_id` is what its result names."""

    call_id: str
    name: str
    arguments: str


class Incomplete(msgspec.Struct, gc=False):
    """Why a reply is incomplete."""

    reason: str | None = None


class RawMessage(msgspec.Struct, gc=False):
    """Ids of one turn, as vLLM reports them."""

    tokens: list[int] | None = None


class ResponsesUsage(msgspec.Struct, gc=False):
    """Token counts."""

    input_tokens: Count | None = None
    output_tokens: Count | None = None
    total_tokens: Count | None = None
    input_tokens_details: dict[str, object] | None = None
    output_tokens_details: dict[str, object] | None = None


class ResponsesBody(msgspec.Struct, gc=False):
    """The whole reply. `kv_transfer_params` is a key that vLLM alone writes."""

    output: list[Item]
    status: str | None = None
    id: str | None = None
    model: str | None = None
    usage: ResponsesUsage | None = None
    error: dict[str, object] | None = None
    incomplete_details: Incomplete | None = None
    store: bool | None = None
    service_tier: str | None = None
    kv_transfer_params: object = msgspec.UNSET
    input_messages: list[RawMessage] | None = None
    output_messages: list[RawMessage] | None = None


_BODY = msgspec.json.Decoder(ResponsesBody)

_INCOMPLETE: dict[str | None, FinishReason] = {"max_output_tokens": "length", "content_filter": "content_filter"}


def read(body: bytes) -> ResponsesBody:
    """Decode a finished reply. Raises StatusError for a failed one, BadReply for one that is not done."""
    reply = decode(_BODY, body)
    if reply.error is not None or reply.status == "failed":
        raise error_in_body(body.decode(errors="replace")) or ServerFault(500, "the response failed without a reason")
    if reply.status not in ("completed", "incomplete"):
        raise BadReply(f"the response is {reply.status}, not done", path="/status")
    return reply


def lift(request: Request, body: bytes) -> Response:
    """Read a plain reply. Raises what dialects/dialect.py names."""
    reply = read(body)
    usage = lift_usage(reply.usage)
    choice = lift_choice(request, reply, usage, server_of(reply))
    stored = reply.store if reply.store is not None else request.session.store
    tier = {"service_tier": reply.service_tier} if reply.service_tier is not None else {}
    return Response(
        choices=(choice,),
        usage=usage,
        prompt_ids=prompt_ids(reply),
        model=reply.model,
        response_id=reply.id,
        session_id=reply.id if stored else None,
        metadata=dict(tier),
        notes=early_cut(request, choice.finish, usage),
    )


def server_of(reply: ResponsesBody) -> Server:
    """vLLM by a key of its own; None where nothing tells."""
    return "vllm" if reply.kv_transfer_params is not msgspec.UNSET else None


def lift_usage(wire: ResponsesUsage | None) -> Usage:
    """Usage of the IR; unreported counts stay None."""
    if wire is None:
        return Usage()
    counts, details = breakdown(wire.input_tokens_details, wire.output_tokens_details)
    return Usage(
        prompt=wire.input_tokens,
        completion=wire.output_tokens,
        total=wire.total_tokens,
        cached=counts.get("cached"),
        cache_write=counts.get("cache_write"),
        reasoning=counts.get("reasoning"),
        details=details,
    )


def prompt_ids(reply: ResponsesBody) -> Ids | None:
    """Ids of the templated prompt, where vLLM names one."""
    return _named(reply.input_messages, "/input_messages") if len(reply.input_messages or ()) == 1 else None


def early_cut(request: Request, finish: Finish, usage: Usage) -> tuple[str, ...]:
    """A note where the reply is cut before the limit that was asked: SGLang 0.5 cuts two tokens early."""
    limit, spent = request.sampling.max_tokens, usage.completion
    if finish.raw != "max_output_tokens" or limit is None or spent is None or spent >= limit:
        return ()
    return (f"the server cut at {spent} tokens, {limit} were asked",)


def lift_choice(request: Request, reply: ResponsesBody, usage: Usage, server: Server) -> Choice:
    """The only choice, whole. Raises BadReply, MissingChannel, OutputContractError."""
    parts = _parts(reply)
    text = "".join(p.text or "" for _, p in parts if p.type == "output_text")
    refusal = "".join(p.refusal or "" for _, p in parts if p.type == "refusal") or None
    calls = tuple(p for p in _turn(reply) if isinstance(p, ToolCallPart))
    finish = _finish(reply, bool(calls))
    reasoning = "\n\n".join(t for t in (reasoning_text(i) for i in _of(reply, "reasoning")) if t)
    ids = _named(reply.output_messages, "/output_messages")
    choice = Choice(
        index=0,
        text=text,
        finish=finish,
        token_ids=ids,
        parsed=_parsed(request, text, refusal, bool(calls), finish),
        reasoning=reasoning or None,
        tool_calls=calls,
        hosted_uses=tuple(HostedUse(str(i.get("type")), i) for i in reply.output if _is_hosted(i)),
        citations=tuple(_citations(parts)),
        opaque=tuple(_seal(i) for i in reply.output if _is_hosted(i) or i.get("type") == "reasoning"),
        refusal=refusal,
        turn=_turn(reply),
    )
    check_forced(request, choice, "/output")
    if request.scoring.sampled is None:
        return choice
    return msgspec.structs.replace(choice, tokens=_tokens(request, parts, choice, usage, server))


def _tokens(
    request: Request, parts: Sequence[tuple[str, ContentPart]], choice: Choice, usage: Usage, server: Server
) -> Tokens:
    """The scored tokens of all texts, counted against usage and ids, and joined to the text."""
    texts = [(f"{path}/logprobs", part) for path, part in parts if part.type == "output_text"]
    absent = next((path for path, part in texts if part.logprobs is None), None if texts else "/output")
    if absent is not None:
        raise MissingChannel("logprobs were asked and are absent", path=absent)
    where = texts[0][0] if len(texts) == 1 else "/output"
    entries = [entry for _, part in texts for entry in part.logprobs or ()]
    tokens = openai_scores.sampled_tokens(request, entries, server, where)
    openai_scores.check_count(len(tokens), usage, server, int(choice.finish.reason != "length"), where)
    openai_scores.check_text(entries, choice.text, where)
    if choice.token_ids is None:
        return tokens
    logprobs.same_length("/output_messages", len(tokens), len(choice.token_ids), "scored tokens")
    return msgspec.structs.replace(tokens, ids=choice.token_ids)


def _parts(reply: ResponsesBody) -> list[tuple[str, ContentPart]]:
    """(JSON pointer, part) of all messages, in order."""
    found = []
    for i, item in enumerate(reply.output):
        if item.get("type") == "message":
            message = _typed(item, MessageItem, f"/output/{i}")
            found += [(f"/output/{i}/content/{j}", part) for j, part in enumerate(message.content)]
    return found


def _typed(item: Item, kind: type[T], path: str) -> T:
    try:
        return msgspec.convert(item, kind)
    except msgspec.ValidationError as error:
        message, inner = split_path(str(error))
        raise BadReply(message, path=f"{path}{inner}") from None


def _of(reply: ResponsesBody, kind: str) -> list[Item]:
    return [item for item in reply.output if item.get("type") == kind]


def _is_hosted(item: Item) -> bool:
    return item.get("type") not in ("message", "reasoning", "function_call")


def _seal(item: Item) -> Opaque:
    return Opaque(DIALECT, str(item.get("type")), item)


def _turn(reply: ResponsesBody) -> tuple[Part, ...]:
    """Every item in its place, with itself as the opaque that goes back."""
    return tuple(_part(item, f"/output/{i}") for i, item in enumerate(reply.output))


def _part(item: Item, path: str) -> Part:
    kind = item.get("type")
    if kind == "function_call":
        call = _typed(item, CallItem, path)
        return ToolCallPart(call.call_id, call.name, call.arguments, _seal(item))
    if kind == "reasoning" and reasoning_text(item):
        return ReasoningPart(reasoning_text(item), _seal(item))
    if kind == "message" and message_text(item):
        return TextPart(message_text(item), _seal(item))
    return OpaquePart(_seal(item))


def _finish(reply: ResponsesBody, called: bool) -> Finish:
    if reply.status == "completed":
        return Finish("tool_calls" if called else "stop", "completed")
    raw = reply.incomplete_details.reason if reply.incomplete_details is not None else None
    return Finish(_INCOMPLETE.get(raw, "other"), raw or "incomplete")


def _parsed(request: Request, text: str, refusal: str | None, called: bool, finish: Finish) -> object:
    if called:
        return None
    if refusal is not None and structured.constrains(request.output):
        raise OutputContractError(f"the model refused: {clip(refusal, 120)}", path="/output")
    return structured.parse(request.output, text, finish, "/output")


def _citations(parts: Sequence[tuple[str, ContentPart]]) -> list[Citation]:
    """Citations with their spans in the whole text."""
    found, offset = [], 0
    for _, part in parts:
        found += [lift_citation(str(a.get("type")), a, a, offset) for a in part.annotations or ()]
        offset += len(part.text or "")
    return found


def _named(messages: Sequence[RawMessage] | None, path: str) -> Ids | None:
    """All ids of a list of turns, or None where a turn has none."""
    turns = [m.tokens for m in messages or ()]
    if not turns or any(t is None for t in turns):
        return None
    return logprobs.ids([i for t in turns if t is not None for i in t], path)
