"""The chat.completion reply and what it lifts to.

vLLM names reasoning text `reasoning` and a matched stop `stop_reason`; SGLang `reasoning_content` and
`matched_stop`; OpenAI has neither. vLLM puts `prompt_logprobs` and `prompt_token_ids` beside the choices.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from logproof.dialects.common import logprobs, openai_scores, structured
from logproof.dialects.common.decode import decode
from logproof.dialects.common.openai_reply import OpenAIUsage, check_forced, lift_citation, lift_finish, put_in_order
from logproof.dialects.common.openai_scores import ScoredToken, Server
from logproof.dialects.common.vllm_labels import lift_labels
from logproof.dialects.common.vllm_prompt import PromptEntry, lift_prompt
from logproof.dialects.openai_chat.messages import DIALECT
from logproof.dialects.openai_chat.partial_ids import without_partial_ids
from logproof.errors import BadReply, MissingChannel, OutputContractError, clip
from logproof.ir.message import Opaque, OpaquePart, Part, ReasoningPart, TextPart, ToolCallPart
from logproof.ir.request import Request
from logproof.ir.response import Choice, Citation, Finish, Ids, Labels, Response, Tokens, Usage
from logproof.ir.tokens import placeholder_id


class CalledFunction(msgspec.Struct, gc=False):
    """Name and arguments of a call; in a stream each may come in pieces."""

    name: str | None = None
    arguments: str | None = None


class ToolCall(msgspec.Struct, gc=False):
    """One tool call; `index` only in a stream."""

    function: CalledFunction | None = None
    id: str | None = None
    type: str | None = None
    index: int | None = None


class ChatMessage(msgspec.Struct, gc=False):
    """The message of a choice, or in a stream one delta of it."""

    content: str | None = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    annotations: list[dict[str, object]] | None = None
    function_call: object = None


class ChatLogprobs(msgspec.Struct, gc=False):
    """Scored tokens of the text, or of a refusal; `tokens` is the completions shape, which is foreign here."""

    content: list[ScoredToken] | None = None
    refusal: list[ScoredToken] | None = None
    tokens: object = None


class ChatChoice(msgspec.Struct, gc=False):
    """One choice of the reply."""

    message: ChatMessage
    index: int | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    matched_stop: str | int | msgspec.UnsetType | None = msgspec.UNSET
    logprobs: ChatLogprobs | None = None
    token_ids: list[int] | None = None
    response_token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class ChatBody(msgspec.Struct, gc=False):
    """The whole reply."""

    choices: list[ChatChoice]
    id: str | None = None
    model: str | None = None
    system_fingerprint: str | None = None
    service_tier: str | None = None
    usage: OpenAIUsage | None = None
    metadata: dict[str, object] | None = None
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: list[dict[int, PromptEntry] | None] | None = None


_BODY = msgspec.json.Decoder(ChatBody)


def read(body: bytes) -> ChatBody:
    """Decode a reply; its choices come in index order. Raises BadReply for missing or repeated indexes."""
    reply = decode(_BODY, body)
    put_in_order(reply.choices)
    return reply


def server_of(reply: ChatBody) -> Server:
    """vLLM by its fingerprint or its `token_id:N`, SGLang by the key `matched_stop`; None where nothing tells."""
    if (reply.system_fingerprint or "").startswith("vllm"):
        return "vllm"
    if any(placeholder_id(e.token) is not None for c in reply.choices for e in _entries(c)[:1]):
        return "vllm"
    return "sglang" if any(c.matched_stop is not msgspec.UNSET for c in reply.choices) else None


def lift_choice(request: Request, wire: ChatChoice, server: Server) -> Choice:
    """One choice, whole. Raises BadReply, MissingChannel, OutputContractError."""
    path = f"/choices/{wire.index}"
    message = wire.message
    calls = tuple(_call(c, f"{path}/message/tool_calls/{i}") for i, c in enumerate(message.tool_calls or ()))
    if message.function_call is not None and not calls:
        raise BadReply("the call came in the withdrawn form function_call", path=f"{path}/message/function_call")
    finish = _finish(wire, bool(calls))
    tokens, labels = _scored(request, wire, server, f"{path}/logprobs")
    ids = _ids(wire, tokens, labels, path)
    if tokens is not None and tokens.ids is None and ids is not None:
        tokens = msgspec.structs.replace(tokens, ids=ids)
    reasoning = _reasoning(message, path)
    return Choice(
        index=wire.index or 0,
        text=message.content or "",
        finish=finish,
        token_ids=ids,
        tokens=tokens,
        labels=labels,
        parsed=_parsed(request, message, finish, f"{path}/message"),
        reasoning=reasoning,
        tool_calls=calls,
        citations=tuple(_citation(a) for a in message.annotations or ()),
        refusal=message.refusal or None,
        turn=_turn(message, reasoning, calls),
    )


def lift(request: Request, body: bytes) -> Response:
    """Read a plain reply. Raises what dialects/dialect.py names."""
    reply = read(body)
    server, usage = server_of(reply), reply.usage.lifted() if reply.usage is not None else Usage()
    choices = [lift_choice(request, wire, server) for wire in reply.choices]
    check_choices(request, reply, choices, usage, server)
    choices, about_ids = without_partial_ids(request, choices, usage)
    prompt, width = None, request.scoring.prompt
    if width is not None:
        prompt = lift_prompt(reply.prompt_logprobs, reply.prompt_token_ids, width, None, "")
    return Response(
        choices=tuple(choices),
        usage=usage,
        prompt=prompt,
        prompt_ids=prompt_ids(reply),
        model=reply.model,
        fingerprint=reply.system_fingerprint,
        response_id=reply.id,
        metadata=metadata(reply),
        notes=tuple(about_ids),
    )


def check_choices(request: Request, reply: ChatBody, choices: Sequence[Choice], usage: Usage, server: Server) -> None:
    """Compare scored tokens with usage and text, and forced tool calls with the calls that came."""
    for choice in choices:
        check_forced(request, choice, f"/choices/{choice.index}/message/tool_calls")
    scored = [c.tokens if c.tokens is not None else c.labels for c in choices]
    counts = [len(s.logprobs) for s in scored if s is not None]
    if not counts:
        return
    counted = all(w.token_ids is not None or w.response_token_ids is not None for w in reply.choices)
    counted = counted and not request.schedule.stream  # an event that is lost takes its ids with it
    if usage.completion is not None or not counted:
        stopped = sum(c.finish.reason != "length" for c in choices)
        openai_scores.check_count(sum(counts), usage, server, stopped, "/choices")
    for wire, choice in zip(reply.choices, choices, strict=True):
        entries = _entries(wire)
        named = wire.token_ids is not None and all(placeholder_id(e.token) is not None for e in entries)
        if not named and not choice.reasoning and not choice.tool_calls:
            openai_scores.check_text(entries, choice.text or choice.refusal or "", f"/choices/{choice.index}/logprobs")


def prompt_ids(reply: ChatBody) -> Ids | None:
    """Ids of the templated prompt: vLLM names them beside the choices, SGLang in each."""
    inner = [c.prompt_token_ids for c in reply.choices if c.prompt_token_ids is not None]
    raw = reply.prompt_token_ids if reply.prompt_token_ids is not None else next(iter(inner), None)
    return logprobs.ids(raw, "/prompt_token_ids") if raw is not None else None


def metadata(reply: ChatBody) -> dict[str, object]:
    """What else the reply says of its making: service tier, weight versions."""
    found = {"service_tier": reply.service_tier, **(reply.metadata or {})}
    return {name: value for name, value in found.items() if value is not None}


def _entries(wire: ChatChoice) -> list[ScoredToken]:
    found = wire.logprobs
    return [] if found is None else (found.content or []) + (found.refusal or [])


def _scored(request: Request, wire: ChatChoice, server: Server, path: str) -> tuple[Tokens | None, Labels | None]:
    scoring = request.scoring
    if scoring.sampled is None and scoring.label_ids is None:
        return None, None
    if wire.logprobs is None:
        raise MissingChannel("logprobs were asked and are absent", path=path)
    if wire.logprobs.tokens is not None:
        raise BadReply("the completions shape (tokens[]) where content[] was expected", path=path)
    entries = _entries(wire)
    tokens = (
        openai_scores.sampled_tokens(request, entries, server, f"{path}/content")
        if scoring.sampled is not None
        else None
    )
    labels = None
    if scoring.label_ids is not None:
        at, meaning = f"{path}/content", openai_scores.sampled_meaning(request, server)
        listed = [{r.token: r.logprob for r in e.top_logprobs or ()} for e in entries]
        rows = [(f"{at}/{i}/top_logprobs", row) for i, row in enumerate(listed)]
        labels = lift_labels(rows, scoring.label_ids, meaning, at)
    return tokens, labels


def _ids(wire: ChatChoice, tokens: Tokens | None, labels: Labels | None, path: str) -> Ids | None:
    """The sampled ids, from wherever the reply names them; two sources must agree."""
    scored = len(tokens) if tokens is not None else len(labels.logprobs) if labels is not None else None
    raw = wire.token_ids if wire.token_ids is not None else wire.response_token_ids
    listed = tokens.ids if tokens is not None else None
    if raw is None:
        return listed
    ids = logprobs.ids(raw, f"{path}/token_ids")
    if scored is not None:
        logprobs.same_length(f"{path}/logprobs", len(ids), scored, "token ids")
    if listed is not None and not np.array_equal(ids, listed):
        raise BadReply("token_ids and logprobs name different tokens", path=path)
    return ids


def _call(wire: ToolCall, path: str) -> ToolCallPart:
    function = wire.function
    if function is None or function.name is None or wire.id is None:
        raise BadReply(f"a tool call of type {wire.type!r} without id or function", path=path)
    return ToolCallPart(wire.id, function.name, function.arguments or "")


def _finish(wire: ChatChoice, called: bool) -> Finish:
    """The finish. A choice that ended with calls is `tool_calls` on every server, and without calls it is not."""
    finish = lift_finish(wire)
    if called and finish.reason == "stop":
        return msgspec.structs.replace(finish, reason="tool_calls")
    if finish.reason == "tool_calls" and not called:
        return msgspec.structs.replace(finish, reason="other")
    return finish


def _reasoning(message: ChatMessage, path: str) -> str | None:
    both = {t for t in (message.reasoning, message.reasoning_content) if t}
    if len(both) > 1:
        raise BadReply("reasoning and reasoning_content differ", path=f"{path}/message")
    return both.pop() if both else None


def _parsed(request: Request, message: ChatMessage, finish: Finish, path: str) -> object:
    if message.tool_calls:
        return None
    if message.refusal and structured.constrains(request.output):
        raise OutputContractError(f"the model refused: {clip(message.refusal, 120)}", path=f"{path}/refusal")
    return structured.parse(request.output, message.content or "", finish, f"{path}/content")


def _citation(annotation: dict[str, object]) -> Citation:
    kind = str(annotation.get("type"))
    found = annotation.get(kind)
    return lift_citation(kind, found if isinstance(found, dict) else {}, annotation)


def _turn(message: ChatMessage, reasoning: str | None, calls: tuple[ToolCallPart, ...]) -> tuple[Part, ...]:
    """The parts to send back. An empty content beside other parts counts as null: a stream cannot tell the two."""
    parts: list[Part] = [ReasoningPart(reasoning)] if reasoning else []
    if message.content or (message.content == "" and not (parts or calls or message.refusal)):
        parts.append(TextPart(message.content))
    if message.refusal:
        parts.append(OpaquePart(Opaque(DIALECT, "refusal", message.refusal)))
    return (*parts, *calls)
