"""What every dialect must keep, ours or a third party's: call `check_leaf` for each leaf, `check_shape` once, and
`check_reply` for each recorded reply.

A dialect decides every leaf for every class of value: sent (the body differs from the baseline at the claimed
pointer only, and at declared constants), no-op (the body stays as it was) or refused with a reason; it never
raises anything else, keeps no state, and streams only when asked. A reply is lifted, with every channel that was
asked, or refused by an error of ours; so is every beginning of it.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from dialects.compare import difference, plain
from dialects.wires import NoSender
from logproof.client.client import Client
from logproof.client.prompt_templates import Templates
from logproof.dialects.dialect import Dialect
from logproof.dialects.ledger import resolve
from logproof.dialects.lower import Lowered, lower
from logproof.dialects.matrix import baseline
from logproof.dialects.sample_requests import FULL_FACTS, MESSAGES, SAMPLES, with_leaf
from logproof.errors import InvalidRequest, LogproofError, RequestRefused
from logproof.http.exchange import WireReply
from logproof.ir.facts import Facts
from logproof.ir.leaves import active_leaves, leaf_paths
from logproof.ir.message import Message
from logproof.ir.request import Input, Request
from logproof.ir.response import Response

ENDPOINTS = {"known": FULL_FACTS, "unknown": Facts()}
"""Facts to lower against: everything known and on, and nothing known."""


def samples(leaf: str) -> list[object]:
    """One value of every class that matters for a leaf."""
    if leaf.startswith("input.messages."):
        return [MESSAGES[leaf.removeprefix("input.messages.")]]
    return list(SAMPLES[leaf])


def request_with(dialect: Dialect, facts: Facts, leaf: str, value: object) -> Request:
    """The dialect's plain request with one leaf set, and with what that leaf cannot stand without."""
    name = "input.messages" if leaf.startswith("input.messages.") else leaf
    return with_leaf(baseline(dialect, facts), name, value)


def check_shape(dialect: Dialect) -> None:
    """The class itself: id, channels with a guarantee in words, paths."""
    assert dialect.id.isidentifier()
    assert all(text for text in dialect.channels.values())
    assert dialect.path(baseline(dialect, Facts())).startswith("/")
    assert not vars(dialect), "a dialect holds no state"


def check_leaf(dialect: Dialect, facts: Facts, leaf: str, value: object) -> None:
    """One leaf with one value: sent, no-op or refused, and the body bears it out."""
    request = request_with(dialect, facts, leaf, value)
    try:
        lowered = lower(request, dialect, facts)
    except (RequestRefused, InvalidRequest) as refused:
        check_refusal(refused, request)
        return
    assert lower(request, dialect, facts) == lowered, "lowering twice gives the same"
    decisions = {d.leaf: d for d in lowered.decisions}
    assert set(decisions) == set(active_leaves(request))
    decision = decisions[leaf]
    if decision.kind == "sent":
        assert decision.pointer is not None
        resolve(_body(lowered), decision.pointer)
    else:
        assert decision.kind == "no-op"
        assert decision.reason
    if dialect.steady:
        check_steady(dialect, facts, request, lowered)
    plain = baseline(dialect, facts)
    check_difference(lower(plain, dialect, facts), lowered, _changed(plain, request))
    assert not lowered.wire.stream or request.schedule.stream


def check_steady(dialect: Dialect, facts: Facts, request: Request, lowered: Lowered) -> None:
    """Another prompt, filled into what the first was lowered to, is what it is lowered to itself."""
    templates = Templates(facts)
    templates.keep(request, lowered)
    for asked in (Input(text='another "prompt"'), Input(token_ids=(4, 2))):
        other = msgspec.structs.replace(request, input=asked)
        filled = templates.fill(other)
        assert filled is None or filled == lower(other, dialect, facts)


def check_refusal(refused: RequestRefused | InvalidRequest, request: Request) -> None:
    """A refusal names leaves that were set, each with a reason that the dialect gave."""
    if isinstance(refused, InvalidRequest):
        return
    assert refused.refusals
    for leaf, reason in refused.refusals:
        assert leaf in active_leaves(request)
        assert reason
        assert "makes no decision" not in reason, f"{leaf} is undecided"


def check_difference(base: Lowered, lowered: Lowered, changed: set[str]) -> None:
    """The two bodies differ only where a changed leaf, or a declared constant, claims a pointer."""
    both = (base, lowered)
    claims = {d.pointer for made in both for d in made.decisions if d.pointer and d.leaf in changed}
    claims |= {c.pointer for made in both for c in made.constants}
    for pointer in _differences(_body(base), _body(lowered), ""):
        near = [c for c in claims if f"{pointer}/".startswith(f"{c}/") or f"{c}/".startswith(f"{pointer}/")]
        assert near, f"{pointer} changed, and nothing that changed claims it"


ASKED = (("scoring.prompt", 0), ("scoring.sampled", 0), ("scoring.sampled", 2), ("scoring.label_ids", (1, 2)))
"""Channels that a request may ask of any reply."""
CUTS = 8
"""Beginnings of a reply that are tried, at even distances."""


def check_reply(dialect: Dialect, reply: WireReply) -> int:
    """One recorded reply, whatever it answered: lifted or refused. Returns as how many requests' answer it was lifted.

    Where a request asks for a channel, the channel is there or the reply is refused.
    """
    request, count = baseline(dialect, Facts()), 0
    whole = read(dialect, request, reply)
    check_beginnings(dialect, request, reply, whole)
    for leaf, value in ASKED:
        asked = request_with(dialect, FULL_FACTS, leaf, value)
        found = read(dialect, asked, reply)
        count += found is not None
        if found is not None:
            check_channels(asked, found)
    return count + (whole is not None)


def read(dialect: Dialect, request: Request, reply: WireReply) -> Response | None:
    """The reply lifted and checked as the client does it, twice alike; None where it is refused by an error of ours."""
    client = Client(NoSender(), dialect, FULL_FACTS)
    try:
        first = client.read(request, reply)
    except LogproofError:
        return None
    assert difference(plain(first), plain(client.read(request, reply))) is None, "lifting twice gives the same"
    return first


def check_beginnings(dialect: Dialect, request: Request, reply: WireReply, whole: Response | None) -> None:
    """A reply that ends early is refused, or lifts to what the whole one does (an end mark was lost)."""
    held = reply.body if reply.events is None else reply.events
    for cut in range(0, len(held), len(held) // CUTS + 1):
        events = None if reply.events is None else reply.events[:cut]
        found = read(dialect, request, WireReply(200, (), reply.body[:cut] if events is None else b"", events))
        same = found is None or (whole is not None and difference(plain(found), plain(whole)) is None)
        assert same, f"a reply cut at {cut} was lifted"


def check_channels(request: Request, response: Response) -> None:
    """Every channel that was asked is there, and whole."""
    scoring = request.scoring
    if scoring.prompt is not None:
        assert response.prompt is not None
        assert len(response.prompt) > 0
    for choice in response.choices:
        if scoring.sampled is not None:
            assert choice.tokens is not None
            assert scoring.sampled == 0 or choice.tokens.top is not None
            assert choice.token_ids is None or len(choice.token_ids) == len(choice.tokens)
        assert scoring.label_ids is None or choice.labels is not None


def _body(lowered: Lowered) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(lowered.wire.body)
    return body


def _differences(a: Any, b: Any, at: str) -> list[str]:
    if isinstance(a, dict) and isinstance(b, dict):
        keys = [*a, *(k for k in b if k not in a)]
        return [p for k in keys for p in _differences(a.get(k, ...), b.get(k, ...), f"{at}/{_escape(k)}")]
    return [] if a == b else [at]


def _changed(a: Request, b: Request) -> set[str]:
    """Leaves that are set differently in two requests."""
    one, two = active_leaves(a), active_leaves(b)
    return {leaf for leaf in {*one, *two} if one.get(leaf) != two.get(leaf)}


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def leaves() -> tuple[str, ...]:
    """All leaves that a dialect must decide."""
    return leaf_paths()


def active_leaves_of(messages: tuple[Message, ...]) -> set[str]:
    """Features that messages show."""
    leaves = active_leaves(Request("m", Input(messages=messages)))
    return {leaf.removeprefix("input.messages.") for leaf in leaves if leaf.startswith("input.messages.")}
