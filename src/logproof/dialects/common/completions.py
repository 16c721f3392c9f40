"""The /v1/completions reply, as vllm_native and openai_completions both receive it.

Facts of vLLM 0.32 that shape it: `logprobs.tokens` and the keys of `top_logprobs` are texts, or
`token_id:N` when ids were asked; stop tokens stay in tokens and ids while absent from `text`; `prompt_logprobs`
and `prompt_token_ids` sit in each choice. SGLang 0.5 names a matched stop `matched_stop`, leaves the token itself out
of a top map whose best it is not among, and at width 0 gives no maps and scores no echoed prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import chain, pairwise

import msgspec
import numpy as np

from logproof.dialects.common import logprobs, structured
from logproof.dialects.common.decode import decode
from logproof.dialects.common.joined_texts import PARTIAL
from logproof.dialects.common.openai_reply import OpenAIUsage, lift_finish, put_in_order
from logproof.dialects.common.vllm_prompt import PromptEntry
from logproof.errors import BadReply, MissingChannel
from logproof.ir.request import Output, Request
from logproof.ir.response import Choice, Ids, Labels, Meaning, Response, Tokens, TopK, Usage
from logproof.ir.tokens import placeholder_id, placeholder_ids


class CompletionsLogprobs(msgspec.Struct, gc=False):
    """Sampled, or echoed, tokens; `content` is the chat shape, which is foreign here."""

    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None
    text_offset: list[int] | None = None
    content: object = None


class CompletionsChoice(msgspec.Struct, gc=False):
    """One choice of the reply."""

    text: str
    index: int | None = None
    logprobs: CompletionsLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    matched_stop: str | int | msgspec.UnsetType | None = msgspec.UNSET
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: list[dict[int, PromptEntry] | None] | None = None


class CompletionsBody(msgspec.Struct, gc=False):
    """The whole reply. logproof: what the replay plugin says of a request that it served."""

    choices: list[CompletionsChoice]
    id: str | None = None
    model: str | None = None
    system_fingerprint: str | None = None
    usage: OpenAIUsage | None = None
    logproof: dict[str, object] | None = None


_IDS_PATH = "/choices/0/prompt_token_ids"
_BODY = msgspec.json.Decoder(CompletionsBody)


def bias_body(request: Request) -> dict[str, float]:
    """The logit bias as these wires write it: token ids are strings."""
    return {str(token): value for token, value in (request.sampling.logit_bias or {}).items()}


def read(body: bytes) -> CompletionsBody:
    """Decode a reply; its choices come in index order. Raises BadReply for missing or repeated indexes."""
    reply = decode(_BODY, body)
    put_in_order(reply.choices)
    return reply


def envelope(
    request: Request,
    reply: CompletionsBody,
    choices: Sequence[Choice],
    prompt: Tokens | None,
    prompt_ids: Ids | None = None,
) -> Response:
    """The Response around lifted choices. prompt_ids: the first choice's `prompt_token_ids` where already checked."""
    reported = reply.usage.completion_tokens if reply.usage is not None else None
    check_counted(request, reported, named=all(c.token_ids is not None for c in reply.choices))
    first = reply.choices[0] if reply.choices else None
    raw_ids = first.prompt_token_ids if first is not None else None
    if any(c.prompt_token_ids != raw_ids for c in reply.choices):
        raise BadReply("the choices name different prompts", path="/choices")
    return Response(
        choices=tuple(choices),
        usage=reply.usage.lifted() if reply.usage is not None else Usage(),
        prompt=prompt,
        prompt_ids=logprobs.ids(raw_ids, _IDS_PATH) if prompt_ids is None and raw_ids is not None else prompt_ids,
        model=reply.model,
        fingerprint=reply.system_fingerprint,
        response_id=reply.id,
        metadata={"logproof": reply.logproof} if reply.logproof is not None else {},
    )


def lift_choice(
    request: Request, wire: CompletionsChoice, text: str, tokens: Tokens | None, labels: Labels | None
) -> Choice:
    """One choice with its text, ids and structured value; the text of a replay is given, and judged by nobody."""
    path = f"/choices/{wire.index}"
    finish = lift_finish(wire)
    output = request.output if request.replay.token_ids is None else Output()
    ids: Ids | None = logprobs.ids(wire.token_ids, f"{path}/token_ids") if wire.token_ids is not None else None
    if ids is None and tokens is not None:
        ids = tokens.ids
    if ids is not None and tokens is not None and tokens.ids is not None and not np.array_equal(ids, tokens.ids):
        raise BadReply("token_ids and logprobs name different tokens", path=path)
    if tokens is not None and tokens.ids is None and ids is not None:
        logprobs.same_length(f"{path}/logprobs", len(ids), len(tokens), "token ids")
        tokens = msgspec.structs.replace(tokens, ids=ids)
    return Choice(
        index=wire.index or 0,
        text=text,
        finish=finish,
        token_ids=ids,
        tokens=tokens,
        labels=labels,
        parsed=structured.parse(output, text, finish, f"{path}/text"),
    )


class LogprobLists(msgspec.Struct, dict=True):
    """The three parallel lists of a completions `logprobs` object, checked to be equally long."""

    tokens: list[str]
    values: list[float | None]
    top: list[dict[str, float] | None] | None

    @cached_property
    def ids(self) -> list[int] | None:
        """Ids of the tokens where all are `token_id:N`, None where they are texts; a mixture counts as texts."""
        return placeholder_ids(self.tokens) if self.tokens else None


def read_logprobs(wire: CompletionsChoice, width: int) -> LogprobLists:
    """The logprobs of a choice, asked at a width.

    Raises MissingChannel where absent, BadReply for a foreign or uneven shape, or one that contradicts itself.
    """
    path = f"/choices/{wire.index}/logprobs"
    found = wire.logprobs
    if found is None:
        raise MissingChannel("logprobs were asked and are absent", path=path)
    if found.tokens is None or found.token_logprobs is None:
        shape = "the chat shape (content[])" if found.content is not None else "another shape"
        raise BadReply(f"{shape} where tokens[] and token_logprobs[] were expected", path=path)
    logprobs.same_length(f"{path}/token_logprobs", len(found.tokens), len(found.token_logprobs), "tokens")
    if found.top_logprobs:
        logprobs.same_length(f"{path}/top_logprobs", len(found.tokens), len(found.top_logprobs), "tokens")
    check_offsets(found.tokens, found.text_offset, path)
    if width == 0 and found.top_logprobs and wire.matched_stop is msgspec.UNSET:
        _check_single(found.tokens, found.token_logprobs, found.top_logprobs, f"{path}/top_logprobs")
    return LogprobLists(found.tokens, found.token_logprobs, found.top_logprobs or None)


def _check_single(
    tokens: Sequence[str], values: Sequence[float | None], top: Sequence[dict[str, float] | None], path: str
) -> None:
    """A map of one entry, as servers give it at width 0, repeats the token's own value."""
    for i, (token, value, entries) in enumerate(zip(tokens, values, top, strict=True)):
        if entries is not None and len(entries) == 1 and entries != {token: value}:
            raise BadReply(f"two values for the token {token!r}: {value} and {entries}", path=f"{path}/{i}")


def sampled_tokens(request: Request, found: LogprobLists, meaning: Meaning, path: str) -> Tokens:
    """Tokens of the sampled channel: keyed by id where every token is a `token_id:N`, by text otherwise.

    A top map short of its width, or with another value for the sampled token, is refused.
    """
    width = request.scoring.sampled or 0
    ids = found.ids
    values = logprobs.logprobs(found.values, f"{path}/token_logprobs")
    top = top_maps(found, width, ids, f"{path}/top_logprobs") if width else None
    return Tokens(
        logprobs=values,
        meaning=meaning,
        ids=logprobs.ids(ids, path) if ids is not None else None,
        texts=tuple(found.tokens) if ids is None else None,
        top=top,
    )


def top_maps(found: LogprobLists, width: int, ids: Sequence[int] | None, path: str) -> TopK:
    """A checked TopK from the maps of a completions reply; keys are texts, or `token_id:N` beside `ids`."""
    if found.top is None:
        raise MissingChannel("top logprobs were asked and are absent", path=path)
    maps = [entries or {} for entries in found.top]
    for i, (token, listed) in enumerate(zip(found.tokens, maps, strict=True)):
        if listed.get(token) != logprobs.SENTINEL:
            logprobs.check_spoiled(listed.values(), f"{path}/{i}")
    keys = list(chain.from_iterable(maps))
    keyed = placeholder_ids(keys) if ids is not None else None
    if ids is not None and keyed is None:
        raise BadReply("a top entry keyed by text among ids", path=path)
    own: Sequence[int | str] = found.tokens if ids is None else ids
    entries = logprobs.Flat(
        counts=logprobs.integers([*map(len, maps)]),
        keys=keys if keyed is None else keyed,
        values=logprobs.floats([*chain.from_iterable([m.values() for m in maps])]),
        by_id=ids is not None,
        texts=keys if ids is None else None,
        unique=True,
    )
    return logprobs.flat_top_k(entries, width, own, logprobs.floats(found.values), path)


def check_offsets(tokens: Sequence[str], offsets: Sequence[int] | None, path: str) -> None:
    """Text offsets witness the order of tokens, and each plain token, which ends where the next one begins.

    Servers count in characters or in bytes, and give an offset no sense inside a character or beside ids; one
    that gives every token 0 or -1 tells nothing. Raises BadReply.
    """
    if not offsets:
        return
    logprobs.same_length(f"{path}/text_offset", len(tokens), len(offsets), "tokens")
    telling = placeholder_id(tokens[0]) is None and max(offsets) > 0
    if not telling and offsets == sorted(offsets):
        return
    for i, (begin, end) in enumerate(pairwise(offsets)):
        if end < begin:
            raise BadReply("this token begins before the one in front of it", path=f"{path}/text_offset/{i + 1}")
        token, length = tokens[i], end - begin
        if length != len(token) and telling and _is_plain(token) and length != len(token.encode()):
            message = f"the token {token!r} takes {length} characters of the text"
            raise BadReply(message, path=f"{path}/text_offset/{i + 1}")


def _is_plain(token: str) -> bool:
    """Whether a token's text is its own, not that of a piece of a character."""
    return token != "" and PARTIAL not in token and not token.startswith("bytes:")


def check_counted(request: Request, reported: int | None, *, named: bool) -> None:
    """Refuse scored tokens that nothing else counts: a lost one would not show.

    reported: usage. named: whether every choice has ids beside its scores; in a stream they are lost together.
    Raises BadReply.
    """
    scored = request.scoring.sampled is not None or request.scoring.label_ids is not None
    if scored and reported is None and (request.schedule.stream or not named):
        hint = "ask without streaming, or an endpoint that reports usage"
        raise BadReply("nothing in the reply says how many tokens were sampled", path="/usage", hint=hint)
