"""Client: the one path from a Request to a checked Response.

validate -> lower -> close the ledger (all refusals at once, before I/O) -> send -> lift -> check -> `Call`.
Everything that calls an engine goes through `Client.call`; nothing else does I/O on its behalf but the
sender, and the tokenizer where texts of ids are asked.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, TypeVar

from msgspec.structs import replace

from logproof.client.check_prompt_ids import check_prompt_ids
from logproof.client.fill_texts import fill_texts
from logproof.client.prompt_templates import Templates
from logproof.client.tokenizer import Tokenizer
from logproof.dialects import empty_replies, reply_checks
from logproof.dialects.call import Call
from logproof.dialects.dialect import Dialect
from logproof.dialects.lower import Lowered, lower
from logproof.errors import BadReply, InvalidRequest
from logproof.http.exchange import WireReply
from logproof.http.transport import Sender
from logproof.ir.facts import Facts
from logproof.ir.leaves import without
from logproof.ir.request import Request
from logproof.ir.response import Labels, Response, Tokens

T = TypeVar("T", bound=Tokens | Labels | None)

MAX_SCORED_TOKENS = 65_536
"""Longest prompt that is sent to be scored: engines have run out of memory over prompt length times vocabulary."""


class Client:
    """Calls one endpoint in one dialect.

    sender: transport of the endpoint. facts: from a probe; unknown facts decide like absent features.
    tokenizer: fills in texts of ids after lifting, None leaves them unknown. drop: see `lower`.
    """

    def __init__(
        self,
        sender: Sender,
        dialect: Dialect,
        facts: Facts | None = None,
        *,
        tokenizer: Tokenizer | None = None,
        drop: Collection[str] = (),
    ) -> None:
        self.sender = sender
        self.dialect = dialect
        self.facts = facts or Facts()
        self.tokenizer = tokenizer
        self.drop = frozenset(drop)
        self._templates = Templates(self.facts) if dialect.steady else None

    async def call(self, request: Request) -> Call:
        """Send one request and return its checked reply.

        Raises UsageError kinds before I/O, EndpointError kinds after.
        """
        lowered = self._lower(request)
        await self._check_size(request)
        reply = await self.sender.send(lowered.wire)
        effective = without(request, [d.leaf for d in lowered.decisions if d.kind == "dropped"])
        response = self.read(effective, reply)
        if self.tokenizer is not None:
            response = await fill_texts(response, effective, self.tokenizer)
            await check_prompt_ids(response, effective, self.tokenizer)
        return Call(
            request=request,
            dialect=self.dialect.id,
            decisions=lowered.decisions,
            response=response,
            seconds=reply.seconds,
            attempts=reply.attempts,
            reply=reply,
            wire=lowered.wire,
            notes=_differences(self.facts, response),
        )

    def _lower(self, request: Request) -> Lowered:
        """The request lowered, by a template where one fits."""
        if self._templates is None:
            return lower(request, self.dialect, self.facts, self.drop)
        lowered = self._templates.fill(request)
        if lowered is None:
            lowered = lower(request, self.dialect, self.facts, self.drop)
            self._templates.keep(request, lowered)
        return lowered

    async def _check_size(self, request: Request) -> None:
        """Raise InvalidRequest for a scored prompt above the limit, or one that may be and cannot be counted."""
        text = request.input.text
        count = len(request.input.token_ids or ()) if text is None else len(text.encode())
        if request.scoring.prompt is None or count <= MAX_SCORED_TOKENS:
            return
        if text is not None and self.tokenizer is None:
            raise InvalidRequest(f"a scored prompt of {count} bytes, and no tokenizer to count its tokens")
        if text is not None and self.tokenizer is not None:
            count = len(await self.tokenizer.encode(text))
        if count > MAX_SCORED_TOKENS:
            raise InvalidRequest(
                f"a scored prompt of {count} tokens: an engine may need the logits of all at once",
                hint=f"score it in windows of at most {MAX_SCORED_TOKENS} tokens",
            )

    def read(self, request: Request, reply: WireReply) -> Response:
        """Lift and check a reply. Raises BadReply kinds, naming the server, StatusError for an error inside a 200."""
        try:
            response = self.dialect.lift(_as_reported(request, self.facts), self.dialect.reply_body(reply))
            response = _as_measured(request, response, self.facts)
            reply_checks.check(request, response, self.facts)
        except BadReply as fault:
            if self.facts.engine is not None:
                fault.hint = fault.hint or f"the server is {self.facts.engine} {self.facts.version or ''}".strip()
            raise
        notes = empty_replies.lost_texts(response)
        return replace(response, notes=(*response.notes, *notes)) if notes else response


def _as_reported(request: Request, facts: Facts) -> Request:
    """The request as its reply is read: a server that reports processed logprobs answers as if they were asked."""
    if facts.logprobs_mode != "processed" or request.replay.logprobs_mode is not None:
        return request
    return replace(request, replay=replace(request.replay, logprobs_mode="processed"))


def _as_measured(request: Request, response: Response, facts: Facts) -> Response:
    """Sampled channels labelled as the probe measured them: a wire may not tell, or tell what is usual.

    A meaning that the request asked for, or that a grammar gives, stands; so does the prompt channel's.
    """
    mode = facts.logprobs_mode
    if mode is None or request.replay.logprobs_mode is not None:
        return response
    choices = tuple(
        replace(c, tokens=_measured(c.tokens, mode), labels=_measured(c.labels, mode)) for c in response.choices
    )
    return replace(response, choices=choices)


def _measured(channel: T, mode: Literal["raw", "processed"]) -> T:
    if isinstance(channel, (Tokens, Labels)) and channel.meaning in ("raw", "unknown"):
        return replace(channel, meaning=mode)
    return channel


def _differences(facts: Facts, response: Response) -> tuple[str, ...]:
    """Where a reply differs from what the probe read: another model, another build."""
    notes = []
    if facts.models and response.model is not None and response.model not in facts.models:
        notes.append(f"the reply names model {response.model!r}, the probe saw {', '.join(facts.models)}")
    if facts.fingerprint and response.fingerprint and facts.fingerprint != response.fingerprint:
        notes.append(f"the reply's fingerprint {response.fingerprint!r} differs from the probe's {facts.fingerprint!r}")
    return tuple(notes)
