"""Templates: requests that differ in nothing but their prompt are decided once and sent with each prompt.

A run asks the same of thousands of prompts. Where a dialect is `steady`, all of them have the same decisions, and
their bodies differ in one member. The first request of a kind is lowered in full; for the next ones that decided
body is filled with their own prompt, after the prompt's own checks. Whatever is not as plain as that is lowered
in full.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated

import msgspec
from msgspec.structs import replace

from logproof.dialects.lower import Lowered
from logproof.ir.facts import Facts
from logproof.ir.request import Request

MOST = 256
"""Kinds of requests that are kept."""

_asked = attrgetter(*(name for name in Request.__struct_fields__ if name != "input"))
_encode = msgspec.msgpack.Encoder().encode


class _Template(msgspec.Struct, frozen=True):
    """A lowered request, its body, and the body's member that holds the prompt."""

    lowered: Lowered
    body: dict[str, object]
    member: str


class Templates:
    """Templates of one client. facts: of its endpoint, for the ids that it knows."""

    def __init__(self, facts: Facts) -> None:
        self._known: dict[tuple[str, bytes], _Template] = {}
        bounds = msgspec.Meta(ge=0, lt=2**31 if facts.vocab_size is None else facts.vocab_size)
        self._ids = list[Annotated[int, bounds]]

    def fill(self, request: Request) -> Lowered | None:
        """The request lowered by the template of its kind; None where there is none, or the prompt is not plain."""
        kind = _kind(request)
        template = self._known.get(kind) if kind is not None else None
        prompt = self._prompt(request)
        if template is None or prompt is None:
            return None
        body = msgspec.json.encode({**template.body, template.member: prompt})
        return replace(template.lowered, wire=replace(template.lowered.wire, body=body))

    def keep(self, request: Request, lowered: Lowered) -> None:
        """Make a template of a request that was lowered in full, if its prompt is plain and stands in one member."""
        kind, prompt = _kind(request), self._prompt(request)
        if kind is None or prompt is None:
            return
        pointer = next((d.pointer for d in lowered.decisions if d.leaf == kind[0]), None) or ""
        body: dict[str, object] = msgspec.json.decode(lowered.wire.body)
        if body.get(pointer[1:]) != prompt:
            return
        if len(self._known) >= MOST:
            self._known.clear()
        self._known[kind] = _Template(lowered, body, pointer[1:])

    def _prompt(self, request: Request) -> str | list[int] | None:
        """The value of a plain prompt: a text, or ids that the endpoint knows."""
        text, ids = request.input.text, request.input.token_ids
        if ids is None:
            return text if type(text) is str and text else None
        try:
            return msgspec.convert(ids, self._ids) if text is None and ids else None
        except msgspec.ValidationError:
            return None


def _kind(request: Request) -> tuple[str, bytes] | None:
    """The prompt's leaf, and all that is asked of it; None where other leaves hold free values, or more inputs are set.

    Values of different types differ, though they be equal.
    """
    prompt, tools = request.input, request.tools
    if prompt.messages is not None or prompt.suffix is not None or request.options:
        return None
    if request.output.json_schema is not None or tools.functions is not None or tools.hosted is not None:
        return None
    try:
        return "input.text" if prompt.token_ids is None else "input.token_ids", _encode(_asked(request))
    except (TypeError, ValueError, OverflowError):
        return None
