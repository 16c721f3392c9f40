"""Exchange: one request through the proxy and its reply, as the sink receives it. It holds no header of the client."""

from __future__ import annotations

import hashlib

import msgspec


class CapturedExchange(msgspec.Struct, frozen=True, kw_only=True):
    """One captured call.

    path: below the upstream's root, without query. sent: the client's body; forwarded: the body that the engine got.
    status: HTTP status of the engine. reply: its body, of a stream every byte, b"" where it came compressed. Where a
    body repeated a credential of the client, it is blanked here; the digests (SHA-256, hex) are over the exact bytes.
    served_sha256: of what the client got. streamed: the reply was server-sent events. complete: the reply came to its
    end and reached the client. added: body fields that the proxy added. width: entries a position, by id, that the
    reply is sure to hold; None where no logprobs were asked.
    started_at: RFC 3339 in UTC. seconds: from forwarding to the last byte; first_byte_seconds: to the reply's head.
    """

    path: str
    started_at: str
    sent: bytes
    forwarded: bytes
    sent_sha256: str
    forwarded_sha256: str
    status: int
    content_type: str
    reply: bytes
    reply_sha256: str
    served_sha256: str
    streamed: bool
    complete: bool
    added: tuple[str, ...]
    width: int | None
    seconds: float
    first_byte_seconds: float

    @property
    def size(self) -> int:
        """Bytes that the record holds."""
        return len(self.sent) + len(self.forwarded) + len(self.reply)


def sha256(data: bytes) -> str:
    """SHA-256 of bytes, hex."""
    return hashlib.sha256(data).hexdigest()
