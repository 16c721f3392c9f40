"""Completions as text, decoded by the trusted engine: a record's own text is only its producer's word."""

from __future__ import annotations

from typing import Annotated

import msgspec

from logproof.client.connect import Connection
from logproof.errors import BadReply, EndpointError, clip
from logproof.http.exchange import WireRequest
from logproof.verify.artifact.artifact import Artifact
from logproof.verify.artifact.completion_text import CompletionText

ROUTE = "/detokenize"
MAX_TEXT = 16 << 20
"""Longest text of one completion that is read, characters."""
_Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]


class _VllmText(msgspec.Struct):
    prompt: _Text


class _SglangText(msgspec.Struct):
    text: _Text


async def completion_text(trusted: Connection, artifact: Artifact) -> CompletionText | None:
    """The recorded completion as the trusted engine decodes it; None where it does not."""
    ids = artifact.tokens.completion_ids
    if not ids or trusted.facts.engine not in ("vllm", "sglang"):
        return None
    try:
        return CompletionText(whole=await _text(trusted, ids), before=await _text(trusted, ids[:-1]))
    except EndpointError:
        return None


async def _text(trusted: Connection, ids: tuple[int, ...]) -> str:
    """The text of these ids. Raises what the sender raises, and BadReply for a reply without a text."""
    if not ids:
        return ""
    body = msgspec.json.encode({"model": trusted.model, "tokens": ids})
    reply = await trusted.client.sender.send(WireRequest(path=ROUTE, body=body))
    try:
        if trusted.facts.engine == "sglang":
            return msgspec.json.decode(reply.body, type=_SglangText).text
        return msgspec.json.decode(reply.body, type=_VllmText).prompt
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadReply(f"its reply is no text: {clip(str(error), 120)}") from None
