"""Wire recordings: what one exchange looked like, one JSON file each, free of keys.

A file holds method, path, request, status, headers (content-type only) and `response`, or `response_text`
for a body that is no JSON (an event stream). Headers that carry keys never come near it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from logproof.errors import StatusError, StoreError
from logproof.http.exchange import WireReply, WireRequest
from logproof.http.transport import Sender


def recorder(folder: Path | None) -> Callable[[Sender], Sender]:
    """What puts a RecordingSender in front of a sender, or leaves it alone where there is no folder."""
    return lambda sender: RecordingSender(sender, folder) if folder is not None else sender


class RecordingSender:
    """Passes requests on to another sender and writes each exchange under `folder`.

    Files are named NNNN-METHOD-path.json in the order of answers, counted on from what the folder holds. Raises
    StoreError where the folder cannot be written.
    """

    def __init__(self, sender: Sender, folder: Path) -> None:
        self._sender = sender
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._count = sum(1 for _ in folder.glob("*.json"))
        except OSError as error:
            raise StoreError(f"cannot make {folder}: {error.strerror}") from None

    async def send(self, request: WireRequest) -> WireReply:
        try:
            reply = await self._sender.send(request)
        except StatusError as error:
            self._write(request, error.status, {"error": {"message": error.server_message, "code": error.code}}, None)
            raise
        self._write(request, reply.status, *_body(reply), content_type=reply.header("content-type"))
        return reply

    def _write(
        self,
        request: WireRequest,
        status: int,
        decoded: object,
        text: str | None,
        content_type: str | None = "application/json",
    ) -> None:
        record: dict[str, object] = {
            "method": request.method,
            "path": request.path,
            "request": msgspec.Raw(request.body) if request.body else None,
            "status": status,
            "headers": {"content-type": content_type},
        }
        record.update({"response": decoded} if text is None else {"response_text": text})
        encoded = msgspec.json.format(msgspec.json.encode(record), indent=1)
        digest = hashlib.sha256(encoded).hexdigest()[:8]
        slug = "".join(c if c.isalnum() else "-" for c in request.path.strip("/"))[:60]
        self._count += 1
        path = self._folder / f"{self._count:04d}-{request.method}-{slug}-{digest}.json"
        try:
            path.write_bytes(encoded)
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror}") from None


def _body(reply: WireReply) -> tuple[object, str | None]:
    try:
        return msgspec.json.decode(reply.body), None
    except (msgspec.DecodeError, RecursionError):
        return None, reply.body.decode(errors="replace")
