"""The toy's reply: one text."""

from __future__ import annotations

import msgspec

from logproof.dialects.common.decode import decode
from logproof.ir.request import Request
from logproof.ir.response import Choice, Finish, Response, Usage


class ToyReply(msgspec.Struct):
    """The whole reply."""

    said: str


_REPLY = msgspec.json.Decoder(ToyReply)


def lift(request: Request, body: bytes) -> Response:
    """Read a plain reply. Raises BadReply for another shape."""
    return Response((Choice(0, decode(_REPLY, body).said, Finish("stop", None)),), Usage())
