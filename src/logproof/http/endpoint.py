"""Where requests go and with which key: `endpoint()` checks a user's URL and finds the key.

Dialect paths begin with `/v1/...`, `/v1beta/...` or `/generate` and are appended to `Endpoint.root`, so
a user may give the base with or without `/v1` and a trailing slash. Keys and header values live in
`Secret`s, which nothing prints or stores.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from typing import Literal, NoReturn
from urllib.parse import SplitResult, urlsplit

import msgspec

from logproof.errors import REDACTED, UsageError

AuthStyle = Literal["bearer", "x-api-key", "x-goog-api-key"]
"""How the key is sent: `Authorization: Bearer KEY`, or as the value of the named header."""

KEY_ENV = "LOGPROOF_API_KEY"
"""Environment variable read for any endpoint when no other is named."""

_VENDOR_KEY_ENV = {
    "api.openai.com": ("OPENAI_API_KEY",),
    "api.anthropic.com": ("ANTHROPIC_API_KEY",),
    "generativelanguage.googleapis.com": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
}
_ROUTE = re.compile(
    r"(?:/v1(?:beta)?)?(?:/chat/completions|/completions|/responses|/messages|/generate|/generate_stream|/embeddings"
    r"|/tokenize|/detokenize|/models(?:/[^/:]*:(?:streamG|g)enerateContent|/[^/:]*:countTokens)?|/health)$"
)
_VERSION = re.compile(r"/v1(?:beta)?$")
_MASKED_FROM = 4
_CERTAIN_FROM = 8


class Secret:
    """A text that shows itself only to `reveal`: no repr, no encoding, no pickle holds it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the header that carries it."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(...)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret cannot be stored")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


class Timeouts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Deadlines in seconds of one attempt, each counted from its own start; None is no limit.

    connect: name look-up, TCP and TLS. first_byte: from sending to the head of the reply; a reply that
    is not streamed has none before the engine is done. idle: between two pieces of the body. total:
    from sending to the last byte.
    """

    connect: float | None = 10.0
    first_byte: float | None = 600.0
    idle: float | None = 300.0
    total: float | None = 1800.0


def timeouts_within(total: float | None) -> Timeouts:
    """Limits of one attempt that may take so many seconds in all; None leaves the defaults. Raises UsageError."""
    if total is None:
        return Timeouts()
    if not 0 < total < math.inf:
        raise UsageError("a timeout is seconds above 0")
    return Timeouts(first_byte=total, idle=total, total=total)


class Endpoint(msgspec.Struct, frozen=True):
    """One checked endpoint; build it with `endpoint`.

    root: scheme, host and prefix, without a trailing slash or `/v1`. key: the key, or None. key_env:
    the environment variable that holds the key, or would. headers: extra headers, values hidden.
    auth: how the key is sent. verify: False accepts any certificate, a text is the path of a CA file.
    """

    root: str
    key: Secret | None = None
    key_env: str = KEY_ENV
    headers: tuple[tuple[str, Secret], ...] = ()
    auth: AuthStyle = "bearer"
    timeouts: Timeouts = Timeouts()
    verify: bool | str = True

    @property
    def display(self) -> str:
        """What may be printed and stored of this endpoint."""
        return self.root

    def secret_headers(self) -> dict[str, str]:
        """The headers that every request to this endpoint carries, key included. Never log them."""
        sent = {name: value.reveal() for name, value in self.headers}
        if self.key is not None:
            key = self.key.reveal()
            name, value = ("Authorization", f"Bearer {key}") if self.auth == "bearer" else (self.auth, key)
            sent[name] = value
        return sent

    def occurs_in(self, body: bytes) -> bool:
        """Whether a body repeats the key or an extra header's value; shorter ones than 8 occur in honest text too."""
        hidden = [value for _, value in self.headers] + ([self.key] if self.key is not None else [])
        return any(len(s.reveal()) >= _CERTAIN_FROM and s.reveal().encode() in body for s in hidden)

    def mask(self, text: str) -> str:
        """`text` without the key and the extra header values, in case a server repeats them."""
        hidden = [value.reveal() for _, value in self.headers]
        if self.key is not None:
            hidden.append(self.key.reveal())
        for secret in sorted(hidden, key=len, reverse=True):
            if len(secret) >= _MASKED_FROM:
                text = text.replace(secret, REDACTED)
        return text


def endpoint(
    url: str,
    *,
    key: str | None = None,
    key_env: str | None = None,
    headers: Mapping[str, str] | None = None,
    auth: AuthStyle = "bearer",
    timeouts: Timeouts | None = None,
    verify: bool | str = True,
    env: Mapping[str, str] | None = None,
) -> Endpoint:
    """Check a base URL and find its key.

    The key is `key`; else the variable `key_env`, which must then be set; else LOGPROOF_API_KEY; else,
    only for a vendor's own host, that vendor's variable (a key never goes to a host it is not meant
    for unasked). Raises UsageError for a URL that is not a base URL, or an unusable key or header.
    """
    root, host = _root(url.strip())
    secret, name = _find_key(key, key_env, host, os.environ if env is None else env)
    return Endpoint(
        root=root,
        key=secret,
        key_env=name,
        headers=tuple((_header_name(k), Secret(_header_value(v, f"header {k}"))) for k, v in (headers or {}).items()),
        auth=auth,
        timeouts=timeouts or Timeouts(),
        verify=verify,
    )


def _root(url: str) -> tuple[str, str]:
    """Normalised root and host of a base URL."""
    if "://" not in url:
        _refuse_schemeless(url)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        reason = "its port is not a number from 0 to 65535" if "ort" in str(error) else "its host is malformed"
        raise UsageError(f"the base URL cannot be read: {reason}") from None
    _check_parts(parts)
    host = parts.hostname or ""
    bracketed = f"[{host}]" if ":" in host else host
    base = f"{parts.scheme}://{bracketed}" + (f":{port}" if port is not None else "")
    path = parts.path.rstrip("/")
    if route := _ROUTE.search(path):
        better = base + path[: route.start()]
        raise UsageError(
            f"the base URL ends in a route ({route[0]}), and each dialect adds its own",
            hint=f"give the base URL: {better}",
        )
    return base + _VERSION.sub("", path), host


def _refuse_schemeless(url: str) -> NoReturn:
    if not url:
        raise UsageError("the base URL is empty", hint="give one such as http://127.0.0.1:8000")
    if re.fullmatch(r"[\w.:\[\]/-]+", url):
        raise UsageError(f"the base URL {url} has no scheme", hint=f"did you mean http://{url.lstrip('/')}?")
    raise UsageError("the base URL has no scheme", hint="begin it with http:// or https://")


def _check_parts(parts: SplitResult) -> None:
    if parts.scheme not in ("http", "https"):
        raise UsageError(f"the base URL has the scheme {parts.scheme!r}", hint="only http:// and https:// are spoken")
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            "the base URL holds credentials",
            hint=f"take them out; a key belongs in the environment variable {KEY_ENV}",
        )
    if parts.query or parts.fragment:
        raise UsageError(
            "the base URL holds a query or fragment",
            hint=f"give scheme, host, port and prefix only; a key belongs in the environment variable {KEY_ENV}",
        )
    if not parts.hostname:
        raise UsageError("the base URL has no host", hint="give one such as http://127.0.0.1:8000")
    if re.search(r"[\s\\\x00-\x1f\x7f]", parts.netloc + parts.path):
        raise UsageError("the base URL holds a space, a backslash or a control character")


def _find_key(key: str | None, key_env: str | None, host: str, env: Mapping[str, str]) -> tuple[Secret | None, str]:
    """The key, if there is one, and the variable that holds it or would."""
    if key is not None:
        return Secret(_header_value(key.strip(), "the given key")), key_env or KEY_ENV
    if key_env is not None and not env.get(key_env, "").strip():
        raise UsageError(f"the environment variable {key_env}, named for the key, is not set")
    names = (key_env,) if key_env is not None else (KEY_ENV, *_VENDOR_KEY_ENV.get(host, ()))
    for name in names:
        if text := env.get(name, "").strip():
            return Secret(_header_value(text, f"the key in {name}")), name
    return None, names[-1]


def _header_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name):
        raise UsageError("an extra header has a name that HTTP does not allow")
    return name


def _header_value(value: str, what: str) -> str:
    """The value, if one header line can hold it; the value itself is never named."""
    if not value or not value.isascii() or not value.isprintable():
        raise UsageError(f"{what} is empty or holds characters that a header cannot carry")
    return value
