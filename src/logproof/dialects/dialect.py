"""Dialect: one wire protocol, as a pure translation in both directions.

`lower` turns a Request into a body and one decision a leaf; `lift` turns the reply's bytes into a Response;
`assemble` rebuilds the plain reply from a stream's events, so that both ways share one `lift`. A dialect
does no I/O and imports no other dialect. dialects/registry.py lists the ids; a third party may pass
its own object, or register a class under the entry point group `logproof.dialects`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from logproof.dialects.ledger import Ledger
from logproof.errors import BadReply
from logproof.http.endpoint import AuthStyle
from logproof.http.exchange import SseEvent, WireReply
from logproof.ir.facts import Facts
from logproof.ir.request import Request
from logproof.ir.response import Response


class Dialect(ABC):
    """Base of all dialects; instances hold no state.

    id: its name on the command line. channels: what `lift` can deliver, channel -> the guarantee it gives,
    in words for the reference (names in dialects/capabilities.py). auth: how the key travels, `bearer`,
    `x-api-key` or `x-goog-api-key`. headers: constant request headers (an API version). steady: whether requests
    that differ only in the value of their text, or of their prompt's ids, get the same decisions and bodies that
    differ only there (client/prompt_templates.py).
    """

    id: ClassVar[str]
    channels: ClassVar[Mapping[str, str]]
    auth: ClassVar[AuthStyle] = "bearer"
    headers: ClassVar[tuple[tuple[str, str], ...]] = ()
    steady: ClassVar[bool] = False

    def request_headers(self, facts: Facts) -> tuple[tuple[str, str], ...]:
        """Headers of a request beside the endpoint's own and its key."""
        return self.headers

    @abstractmethod
    def path(self, request: Request) -> str:
        """Path below the endpoint's root, beginning with `/`."""

    @abstractmethod
    def lower(self, request: Request, facts: Facts, ledger: Ledger) -> None:
        """Decide every active leaf of `ledger` and fill its body. Must not raise for what it can refuse."""

    @abstractmethod
    def lift(self, request: Request, body: bytes) -> Response:
        """Read a plain reply of status 200.

        Raises BadReply with the JSON path of the first fault, MissingChannel for an asked result that is
        absent, OutputContractError for structured output off its contract, StatusError for an error object
        inside the reply.
        """

    def assemble(self, events: Sequence[SseEvent]) -> bytes:
        """Rebuild the plain reply from a whole stream. Raises BadReply for a cut or foreign stream."""
        raise BadReply(f"{self.id} has no streamed form, yet {len(events)} events came")

    def streams(self, ledger: Ledger) -> bool:
        """Whether the lowered request asks for a stream."""
        return ledger.body.get("stream") is True

    def reply_body(self, reply: WireReply) -> bytes:
        """The plain body of a reply, assembled first when it came as events."""
        return reply.body if reply.events is None else self.assemble(reply.events)
