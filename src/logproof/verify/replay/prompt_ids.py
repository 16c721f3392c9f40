"""Prompt ids that the verifier makes itself, from a request and the trusted engine's own tokenizer and template.

An executor that put a system message of its own before a chat, or kept only the end of a text, reports truthfully
the ids that it ran. Only ids made from the request show it. Where none can be made, `MadePrompt.reason` says why.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from logproof.client.connect import Connection
from logproof.errors import BadReply, EndpointError, clip
from logproof.http.exchange import WireRequest
from logproof.verify.artifact.known_request import MadePrompt
from logproof.verify.replay.prompt_source import (
    MAX_ID,
    ChatPrompt,
    IdPrompts,
    PromptSource,
    TextPrompts,
    Unmakable,
    prompt_source,
)

ROUTE = "/tokenize"
IN_REQUEST = "the request"
"""What made the ids that a request states itself."""

_SGLANG_CHAT = ("tools", "continue_final_message", "chat_template_kwargs")
"""Template fields that SGLang 0.5.23 takes in /tokenize and in a chat alike."""


class _TokenizeReply(msgspec.Struct):
    tokens: Annotated[list[Annotated[int, msgspec.Meta(ge=0, le=MAX_ID)]], msgspec.Meta(min_length=1)]


_REPLY = msgspec.json.Decoder(_TokenizeReply)


def stated_prompt(path: str, body: object) -> MadePrompt:
    """The prompt of a request that states ids; of any other, that an engine is needed. No I/O."""
    return _without_engine(prompt_source(path, body), "no engine was asked")


async def make_prompt(trusted: Connection, path: str, body: object) -> MadePrompt:
    """The prompt ids of a request, made on the trusted engine. An engine that fails or refuses is a reason, no error.

    path: below the endpoint's root. body: the request's JSON body; the model that it names is the executor's, so the
    engine is asked under its own served name.
    """
    source = prompt_source(path, body)
    if isinstance(source, IdPrompts | Unmakable):
        return _without_engine(source, "")
    asked = _questions(trusted, source)
    if isinstance(asked, Unmakable):
        return MadePrompt(reason=asked.reason)
    try:
        prompts = tuple([await _tokenized(trusted, question) for question in asked])
    except EndpointError as error:
        return MadePrompt(reason=f"the trusted engine did not tokenise it: {clip(error.message, 200)}")
    return MadePrompt(prompts=prompts, by=trusted.endpoint.display)


def _without_engine(source: PromptSource, needed: str) -> MadePrompt:
    if isinstance(source, IdPrompts):
        return MadePrompt(prompts=source.prompts, by=IN_REQUEST)
    return MadePrompt(reason=source.reason if isinstance(source, Unmakable) else needed)


def _questions(trusted: Connection, source: TextPrompts | ChatPrompt) -> list[dict[str, object]] | Unmakable:
    """The bodies of /tokenize that give the prompts, or why this engine has none."""
    engine = trusted.facts.engine
    if engine not in ("vllm", "sglang"):
        return Unmakable("the trusted engine is not known to tokenise as it generates")
    if isinstance(source, TextPrompts):
        special = {} if source.special is None else {"add_special_tokens": source.special}
        return [{"model": trusted.model, "prompt": text, **special} for text in source.texts]
    options = dict(source.options)
    if engine == "sglang":
        unlike = next((name for name in options if name not in _SGLANG_CHAT), None)
        if unlike is not None:
            return Unmakable(f"{unlike} is no field of the trusted engine's chats")
    elif "documents" in options:
        # vLLM hands a chat's documents to its template among the other arguments.
        arguments = options.get("chat_template_kwargs") or {}
        if not isinstance(arguments, dict):
            return Unmakable("chat_template_kwargs is no object")
        options["chat_template_kwargs"] = {**arguments, "documents": options.pop("documents")}
    return [{"model": trusted.model, "messages": source.messages, **options}]


async def _tokenized(trusted: Connection, question: dict[str, object]) -> tuple[int, ...]:
    """Ids of one prompt. Raises what the sender raises, and BadReply for a reply that is no list of ids."""
    request = WireRequest(path=ROUTE, body=msgspec.json.encode(question))
    reply = await trusted.client.sender.send(request)
    try:
        return tuple(_REPLY.decode(reply.body).tokens)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadReply(f"its reply is no list of ids: {clip(str(error), 120)}") from None
