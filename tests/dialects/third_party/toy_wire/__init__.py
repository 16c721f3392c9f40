"""toy: POST /say, text in, text out. A whole dialect as another distribution writes it."""

from __future__ import annotations

from typing import ClassVar

from logproof.dialects.dialect import Dialect
from logproof.dialects.ledger import Ledger
from logproof.ir.facts import Facts
from logproof.ir.request import Request
from logproof.ir.response import Response
from toy_wire.reply import lift
from toy_wire.request import lower


class Toy(Dialect):
    """A wire that serves one model and nothing but text."""

    id: ClassVar[str] = "toy"
    channels: ClassVar[dict[str, str]] = {"text": "always"}

    def path(self, request: Request) -> str:
        return "/say"

    def lower(self, request: Request, facts: Facts, ledger: Ledger) -> None:
        lower(request, facts, ledger)

    def lift(self, request: Request, body: bytes) -> Response:
        return lift(request, body)
