"""Headers on their way through: hop-by-hop ones stay behind, all others pass; which values are secret. Pure."""

from __future__ import annotations

from collections.abc import Iterable

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
_BLANK = b"[redacted]"


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


def secrets(headers: Iterable[Raw]) -> list[bytes]:
    """The credentials of a request, longest first: values of headers that carry them, and a bearer's bare key."""
    values = [value.strip() for name, value in headers if name.lower() in _SECRET]
    values += [value.split(None, 1)[1] for value in values if b" " in value]
    return sorted({v for v in values if len(v) >= _SHORTEST}, key=len, reverse=True)


def mask(data: bytes, hidden: list[bytes]) -> bytes:
    """`data` without the credentials, in case a client or an engine repeats them in a body."""
    for value in hidden:
        data = data.replace(value, _BLANK)
    return data
