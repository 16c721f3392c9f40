"""Plan: what the engine is asked beyond the client's own request, and what must leave the reply for it. Pure.

Only fields that the engine's OpenAPI document lists are added, and only where ids can be had: logprobs keyed by text
are no evidence. A client that asks for logprobs itself gets exactly its own: its width and its names of tokens stay,
since a wider list cannot always be narrowed to the same entries (ties), and the record holds what there is.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from logproof.proxy import json_edit

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
ROUTES = (CHAT, COMPLETIONS)
"""The captured routes, all by POST."""

_OFF = (b"null", b"false")
_UNTOUCHED = ("echo", "use_beam_search")
"""Fields that change what a reply means when ids or logprobs are added: vLLM drops an echoed prompt beside ids."""


class RequestPlan(msgspec.Struct, frozen=True):
    """One request as it will be forwarded.

    body: its bytes. added: fields that were added or set. hidden: reply fields to blank. width: entries a position
    that the reply is sure to hold, asked by the proxy or the client; None where no logprobs were asked.
    """

    body: bytes
    added: tuple[str, ...] = ()
    hidden: frozenset[str] = frozenset()
    width: int | None = None


class Asks(msgspec.Struct, frozen=True):
    """What may be asked of a route. ids, named: return_token_ids and return_tokens_as_token_ids are listed.

    width: entries a position.
    """

    ids: bool
    named: bool
    width: int

    @property
    def any(self) -> bool:
        """Whether anything is asked at all."""
        return self.ids and self.named


def asks(fields: tuple[str, ...], width: int, limit: int | None) -> Asks:
    """What a route's listed fields allow. limit: widest row that the engine gives, None unknown."""
    listed = "logprobs" in fields
    return Asks(
        ids=listed and "return_token_ids" in fields,
        named=listed and "return_tokens_as_token_ids" in fields,
        width=width if limit is None else max(0, min(width, limit - 1)),
    )


def plan(route: str, body: bytes, asks: Asks) -> RequestPlan:
    """The plan of a request. Raises ValueError where the body is no JSON object that can be edited."""
    spans = json_edit.members(body)
    fields = {name: body[start:end] for name, (start, end) in spans.items()}
    own = _own_width(route, fields)
    if not asks.any or any(_on(fields, name) for name in _UNTOUCHED):
        return RequestPlan(body, width=own)
    add: dict[str, bytes] = {}
    hidden: set[str] = set()
    if not _on(fields, "return_token_ids"):
        add["return_token_ids"] = b"true"
        hidden |= {"token_ids", "prompt_token_ids"}
    if own is None:
        add |= _logprobs(route, asks.width)
        hidden.add("logprobs")
    if not add:
        return RequestPlan(body, width=own)
    return RequestPlan(
        json_edit.with_members(body, add), tuple(add), frozenset(hidden), asks.width if own is None else own
    )


def _logprobs(route: str, width: int) -> dict[str, bytes]:
    """Fields that ask for `width` sure entries: chat puts the sampled token in place of its last one."""
    named = {"return_tokens_as_token_ids": b"true"}
    if route == COMPLETIONS:
        return {"logprobs": b"%d" % width, **named}
    return {"logprobs": b"true", "top_logprobs": b"%d" % (width + 1), **named}


def _own_width(route: str, fields: Mapping[str, bytes]) -> int | None:
    """Sure entries, by id, of what the client asked for itself; None where it asked for no logprobs.

    0 also for rivals that it has named by text, and for a request that only the engine can judge.
    """
    if route == COMPLETIONS:
        sure = _number(fields.get("logprobs", b"null"))
    elif any(_on(fields, name) for name in ("logprobs", "top_logprobs", "logprob_token_ids")):
        sure = max(0, (_number(fields.get("top_logprobs", b"0")) or 0) - 1)
    else:
        sure = None
    return sure if sure is None or _on(fields, "return_tokens_as_token_ids") else 0


def _number(text: bytes) -> int | None:
    if text == b"null":
        return None
    return int(text) if text.isdigit() and len(text) < 10 else 0


def _on(fields: Mapping[str, bytes], name: str) -> bool:
    return fields.get(name, b"null") not in _OFF
