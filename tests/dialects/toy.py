"""A third party's dialect, and the same with each fault that the contract must catch."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from logproof.dialects.common.decode import decode
from logproof.dialects.dialect import Dialect
from logproof.dialects.ledger import Ledger
from logproof.ir.facts import Facts
from logproof.ir.request import Request
from logproof.ir.response import Choice, Finish, Response, Usage


class Reply(msgspec.Struct):
    """The toy's reply."""

    said: str


_REPLY = msgspec.json.Decoder(Reply)


class Toy(Dialect):
    """POST /say: text in, text out; everything else is refused."""

    id: ClassVar[str] = "toy"
    channels: ClassVar[dict[str, str]] = {}

    def path(self, request: Request) -> str:
        return "/say"

    def lower(self, request: Request, facts: Facts, ledger: Ledger) -> None:
        ledger.send("input.text", "/text")
        ledger.noop("model", "the toy serves one model")
        ledger.send("sampling.max_tokens", "/limit/tokens")
        ledger.noop("schedule.stream", "the toy does not stream")
        for leaf in list(ledger.active):
            if leaf not in ("input.text", "model", "sampling.max_tokens", "schedule.stream"):
                ledger.refuse(leaf, "the toy cannot")

    def lift(self, request: Request, body: bytes) -> Response:
        said = decode(_REPLY, body).said
        return Response((Choice(0, said, Finish("stop", None)),), Usage())


class Forgetful(Toy):
    """Leaves everything but the text undecided."""

    def lower(self, request: Request, facts: Facts, ledger: Ledger) -> None:
        ledger.send("input.text", "/text")
        ledger.noop("model", "the toy serves one model")
        ledger.send("sampling.max_tokens", "/limit/tokens")


class Stateful(Toy):
    """Keeps something between calls."""

    def __init__(self) -> None:
        self.calls = 0


class Smuggler(Toy):
    """Puts a key into the body that nothing explains."""

    def lower(self, request: Request, facts: Facts, ledger: Ledger) -> None:
        super().lower(request, facts, ledger)
        ledger.body["extra"] = 1


class Overwriter(Toy):
    """Claims a pointer and then writes over it."""

    def lower(self, request: Request, facts: Facts, ledger: Ledger) -> None:
        super().lower(request, facts, ledger)
        ledger.body["text"] = "another"


class Raiser(Toy):
    """Raises where it should refuse."""

    def lower(self, request: Request, facts: Facts, ledger: Ledger) -> None:
        super().lower(request, facts, ledger)
        if request.sampling.seed is not None:
            raise RuntimeError("boom")


class Breaker(Toy):
    """Breaks on a cut reply where it should refuse."""

    def lift(self, request: Request, body: bytes) -> Response:
        msgspec.json.decode(body)
        return super().lift(request, body)


class Hasty(Toy):
    """Takes what came for the whole."""

    def lift(self, request: Request, body: bytes) -> Response:
        said = body.decode().partition(": ")[2].strip('"}')
        return Response((Choice(0, said, Finish("stop", None)),), Usage())


class Fickle(Toy):
    """Lifts one reply to another text each time."""

    count: ClassVar[int] = 0

    def lift(self, request: Request, body: bytes) -> Response:
        said = decode(_REPLY, body).said
        type(self).count += 1
        return Response((Choice(0, f"{said} {self.count}", Finish("stop", None)),), Usage())
