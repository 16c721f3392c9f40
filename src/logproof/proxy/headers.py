"""Headers on their way through: hop-by-hop ones stay behind, all others pass; which values are secret. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import parse_qsl

from logproof.errors import REDACTED

Raw = tuple[bytes, bytes]

_HOP = {
    b"connection",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"proxy-connection",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
}
_SECRET = {b"authorization", b"proxy-authorization", b"x-api-key", b"api-key", b"x-goog-api-key", b"cookie"}
_SHORTEST = 4
_LIKELY = re.compile(rb"auth|key|token|secret|password|session|signature")
_SHORTEST_LIKELY = 8
"""Bytes of a value that only its name makes a likely credential: shorter ones, such as `true`, are common words."""


def end_to_end(headers: Iterable[Raw], *without: bytes) -> list[Raw]:
    """The headers that belong to the message and not to the connection, names in lower case, `without` left out."""
    pairs = [(name.lower(), value) for name, value in headers]
    named = {part.strip().lower() for name, value in pairs if name == b"connection" for part in value.split(b",")}
    left_out = _HOP | named | set(without)
    return [(name, value) for name, value in pairs if name not in left_out]


def with_length(headers: list[Raw], size: int) -> list[Raw]:
    """The headers with this content length, in the old one's place."""
    value = b"%d" % size
    if not first(headers, b"content-length"):
        return [*headers, (b"content-length", value)]
    return [(k, value if k == b"content-length" else v) for k, v in headers]


def first(headers: Iterable[Raw], name: bytes) -> bytes:
    """First value of a header, b"" where there is none."""
    return next((v for k, v in headers if k.lower() == name), b"")


def secrets(headers: Iterable[Raw], query: bytes = b"") -> list[bytes]:
    """The credentials of a request, longest first.

    Values of headers that carry them, a bearer's bare key, each cookie, and values of headers and query parameters
    whose name is likely one of a credential.
    """
    pairs = [(name.lower(), value.strip()) for name, value in headers]
    values = [value for name, value in pairs if name in _SECRET]
    values += [value.split(None, 1)[1] for value in values if b" " in value]
    credentials = {v for v in values if len(v) >= _SHORTEST}
    cookies = [part.partition(b"=")[2] for name, value in pairs if name == b"cookie" for part in value.split(b";")]
    named = [*pairs, *((k.lower(), v) for k, v in parse_qsl(query))]
    likely = [*cookies, *(value for name, value in named if _LIKELY.search(name))]
    credentials |= {v.strip() for v in likely if len(v.strip()) >= _SHORTEST_LIKELY}
    return sorted(credentials, key=len, reverse=True)


def beside(headers: list[Raw], root: str) -> list[Raw]:
    """Reply headers with a redirect to the engine itself made one to this proxy: else a client would go around it."""
    engine = root.encode()

    def here(value: bytes) -> bytes:
        rest = value.removeprefix(engine)
        return value if rest == value or rest[:1] not in (b"", b"/", b"?") else rest or b"/"

    return [(k, here(v) if k == b"location" else v) for k, v in headers]


def mask(data: bytes, hidden: list[bytes]) -> bytes:
    """`data` without the credentials, in case a client or an engine repeats them in a body."""
    for value in hidden:
        data = data.replace(value, REDACTED.encode())
    return data
