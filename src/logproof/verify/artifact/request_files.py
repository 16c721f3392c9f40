"""Requests on disk: one JSON object a line, {"path", "body"} with an optional {"signature"}, as the requester kept it.

A signature is ed25519 over the 32 bytes of the request's digest. A file says what was requested; whoever verifies
with it must have it from the requester, never from the party that is judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from logproof.errors import ArtifactError
from logproof.files import read_bounded, write_atomic
from logproof.verify.artifact.artifact import Record, Signature
from logproof.verify.artifact.known_request import KnownRequest, request_digest
from logproof.verify.artifact.signing import fits, signature_of

MAX_FILE_BYTES = 1 << 30
"""Largest file of requests that is read."""


class RequestLine(Record, frozen=True, kw_only=True):
    """One line of a file of requests."""

    path: str
    body: object
    signature: Signature | None = None


def request_line(path: str, body: object, private_key: bytes | None = None) -> bytes:
    """A request as one line of JSON, signed where there is a key. Raises as `sign`."""
    signature = None if private_key is None else signature_of(request_digest(path, body), private_key)
    return msgspec.json.encode(RequestLine(path=path, body=body, signature=signature))


def write_requests(path: Path, requests: Iterable[KnownRequest], private_key: bytes | None = None) -> None:
    """Write a whole file of requests atomically. Raises StoreError, and as `sign`."""
    lines = [request_line(request.path, request.body, private_key) + b"\n" for request in requests]
    write_atomic(path, b"".join(lines))


def read_requests(paths: Iterable[Path], public_key: str | None = None) -> dict[str, KnownRequest]:
    """The requests of several files by their digests; of a folder, those of its files `requests-*.jsonl`.

    public_key: the requester's, hex; then only lines that it signed count. Raises ArtifactError naming the file and
    line of the first malformed one, or a path that holds none; StoreError for an unreadable file; UsageError where the
    package for signatures is missing.
    """
    known: dict[str, KnownRequest] = {}
    for path in paths:
        lines = [pair for file in _files_of(path) for pair in _lines_of(file)]
        if not lines:
            raise ArtifactError(f"{path} holds no requests", hint="capture --requests and the proxy write them")
        for line, digest in lines:
            if public_key is None:
                known[digest] = KnownRequest(path=line.path, body=line.body, source="file")
            elif line.signature is not None and line.signature.key_id == public_key and fits(line.signature, digest):
                known[digest] = KnownRequest(path=line.path, body=line.body, source="signed")
    return known


def _files_of(path: Path) -> list[Path]:
    return sorted(path.glob("requests-*.jsonl")) if path.is_dir() else [path]


def _lines_of(file: Path) -> Iterator[tuple[RequestLine, str]]:
    """Each line of a file with the digest of its request."""
    for number, text in enumerate(read_bounded(file, MAX_FILE_BYTES).splitlines(), start=1):
        if text.strip():
            yield _decoded(text, f"{file}:{number}")


def _decoded(text: bytes, where: str) -> tuple[RequestLine, str]:
    try:
        line = msgspec.json.decode(text, type=RequestLine)
        return line, request_digest(line.path, line.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ArtifactError) as error:
        raise ArtifactError(f"{where}: no request: {error}", hint='a line is {"path": ..., "body": ...}') from None
