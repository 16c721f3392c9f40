"""Call: one request with its decisions, its checked response and its bytes."""

from __future__ import annotations

import hashlib

import msgspec

from logproof.dialects.ledger import Decision
from logproof.http.exchange import WireReply, WireRequest
from logproof.ir.request import Request
from logproof.ir.response import Response


class Call(msgspec.Struct, frozen=True, eq=False):
    """One request with its reply.

    seconds: from sending the last attempt to its last byte. attempts: how often it was sent.
    notes: where the reply differs from the facts. digest_as_sent: SHA-256, hex, of the reply's bytes as they
    came, where `reply` holds them masked.
    """

    request: Request
    dialect: str
    decisions: tuple[Decision, ...]
    response: Response
    seconds: float
    attempts: int
    reply: WireReply
    wire: WireRequest
    notes: tuple[str, ...] = ()
    digest_as_sent: str | None = None

    @property
    def reply_digest(self) -> str:
        """SHA-256 of the reply's bytes, hex; made when asked, as it costs a sixth of a scored reply's decoding."""
        return self.digest_as_sent or hashlib.sha256(self.reply.body).hexdigest()
