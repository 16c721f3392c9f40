"""The third party's dialect of third_party/, and the same with each fault that the contract must catch."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import ClassVar

import msgspec

from logproof.dialects.dialect import Dialect
from logproof.dialects.ledger import Ledger
from logproof.ir.facts import Facts
from logproof.ir.request import Request
from logproof.ir.response import Choice, Finish, Response, Usage

THIRD_PARTY = Path(__file__).parent / "third_party"
"""What an installed distribution leaves: a package, and its dist-info with the entry points."""


def _toy() -> type[Dialect]:
    """The class of the package, which is on the path for no longer than its import."""
    sys.path.insert(0, str(THIRD_PARTY))
    try:
        toy: type[Dialect] = import_module("toy_wire").Toy
    finally:
        sys.path.remove(str(THIRD_PARTY))
    return toy


Toy = _toy()


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
        said = super().lift(request, body).choices[0].text
        type(self).count += 1
        return Response((Choice(0, f"{said} {self.count}", Finish("stop", None)),), Usage())
