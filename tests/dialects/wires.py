"""Recorded exchanges of real servers, and the Request that each recorded body of /v1/completions stands for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from logproof.client.client import Client
from logproof.dialects.dialect import Dialect
from logproof.http.exchange import SseEvent, WireReply, WireRequest
from logproof.http.sse import SseParser
from logproof.ir.facts import Facts
from logproof.ir.request import Input, Output, Request, Sampling, Schedule, Scoring
from logproof.ir.response import Response

REPLIES = Path(__file__).parent.parent / "replies"


@dataclass(frozen=True)
class Exchange:
    """One recorded exchange; `body` holds the reply's bytes as the transport would give them."""

    name: str
    request: dict[str, Any]
    status: int
    body: bytes
    stream: bool

    @property
    def reply(self) -> WireReply:
        """The reply of the transport, with events where it came as a stream."""
        return WireReply(self.status, (), self.body, events_of(self.body) if self.stream else None)

    def json(self) -> Any:
        """The reply's JSON, decoded by a decoder that is not the library's."""
        return json.loads(self.body)


def load(folder: str, name: str) -> Exchange:
    """tests/replies/FOLDER/NAME.json."""
    held = json.loads((REPLIES / folder / f"{name}.json").read_text(encoding="utf-8"))
    text = held.get("response_text")
    body = text.encode() if text is not None else json.dumps(held["response"], ensure_ascii=False).encode()
    request = held.get("request") or {}
    return Exchange(name, request.get("body", request), held["status"], body, text is not None)


def names(folder: str) -> list[str]:
    """All recordings of a folder, sorted."""
    return sorted(p.stem for p in (REPLIES / folder).glob("*.json"))


def events_of(body: bytes) -> tuple[SseEvent, ...]:
    """The events of a streamed body."""
    parser = SseParser()
    return (*parser.feed(body), *parser.close())


def request_of(body: dict[str, Any]) -> Request:
    """The Request behind a body of /v1/completions, whichever of the two dialects sent it."""
    prompt, echo, width = body["prompt"], body.get("echo", False), body.get("logprobs")
    structure = body.get("structured_outputs") or {}
    sampling = {n: body.get(n) for n in ("max_tokens", "temperature", "top_p", "top_k", "seed", "n")}
    return Request(
        body["model"],
        Input(text=prompt, suffix=body.get("suffix")) if isinstance(prompt, str) else Input(token_ids=tuple(prompt)),
        sampling=Sampling(**sampling, stop=tuple(body["stop"]) if isinstance(body.get("stop"), list) else None),
        scoring=Scoring(
            prompt=width if echo else body.get("prompt_logprobs"),
            sampled=width if not echo or body.get("max_tokens") != 0 else None,
            label_ids=tuple(body["logprob_token_ids"]) if "logprob_token_ids" in body else None,
            top_by=None if body.get("return_tokens_as_token_ids") else "text",
        ),
        output=Output(
            json_schema=structure.get("json"),
            json_object=structure.get("json_object"),
            regex=structure.get("regex"),
            choice=tuple(structure["choice"]) if "choice" in structure else None,
            grammar=structure.get("grammar"),
        ),
        schedule=Schedule(stream=body.get("stream")),
    )


def lifted(dialect: Dialect, exchange: Exchange, facts: Facts | None = None, **groups: object) -> Response:
    """The recorded reply, lifted and checked as the client does it."""
    request = msgspec.structs.replace(request_of(exchange.request), **groups)
    return Client(NoSender(), dialect, facts).read(request, exchange.reply)


def read(dialect: Dialect, request: Request, reply: object, facts: Facts | None = None) -> Response:
    """Any JSON reply, lifted and checked; text and bytes go as they are."""
    body = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
    return Client(NoSender(), dialect, facts).read(request, WireReply(200, (), body))


class NoSender:
    """A sender for tests that must not send."""

    async def send(self, request: WireRequest) -> WireReply:
        raise AssertionError(f"{request.path} was sent")
