"""When a failed attempt is sent again, and after how long: one decision, from values alone.

Retried: connection loss, 408, 409, 429, every 5xx (529 is Anthropic's "overloaded"); the status rules
are those of the official SDKs. A request that timed out while the server worked is sent once more at
most. `x-should-retry` overrules the status, as in those SDKs. Waits double from `base_s` up to `cap_s`,
shortened at random by up to `jitter`; a wait named by the server is taken as it is, unless it is longer
than `retry_after_cap_s`: then the attempt is the last.
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime

import msgspec

from logproof.http.exchange import header

CONNECTION = "connection"
"""Code of an attempt that ended without a reply (refused, reset, cut)."""

TIMEOUT = "timeout"
"""Code of an attempt that a time limit ended after the connection stood."""

FINAL = "final"
"""Code of an attempt that no repetition can mend (unknown host, certificate refused, redirect, reply too large)."""

_RETRIED = frozenset({408, 409, 429})
_HOPELESS = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_error", FINAL})

Headers = tuple[tuple[str, str], ...]


class RetryPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often and how patiently a failed request is repeated.

    attempts: most sends of one request, at least 1. base_s, cap_s: first and longest wait, seconds.
    jitter: share in [0, 1] of a wait that may be cut off at random. retry_after_cap_s: longest wait
    taken from a server.
    """

    attempts: int = 5
    base_s: float = 0.5
    cap_s: float = 8.0
    jitter: float = 0.25
    retry_after_cap_s: float = 120.0


class RetryDecision(msgspec.Struct, frozen=True):
    """retry: send again. delay_s: seconds to wait before. reason: why, in a few words."""

    retry: bool
    delay_s: float
    reason: str


def decide(
    status: int | None,
    headers: Headers,
    code: str | None,
    attempt: int,
    policy: RetryPolicy,
    *,
    named_delay_s: float | None = None,
    roll: float = 0.0,
    now: float = 0.0,
) -> RetryDecision:
    """Decide about a failed attempt.

    status: HTTP status, None when no reply came. headers: of the reply, names in lower case. code: the
    server's error code, or one of this module's. attempt: sends so far. named_delay_s: a wait that the
    body names (google.rpc.RetryInfo). roll: a random number in [0, 1). now: seconds since the epoch,
    to read a date in Retry-After.
    """
    why = f"HTTP {status}" if status is not None else code or CONNECTION
    if not _retriable(status, headers, code, attempt):
        return RetryDecision(False, 0.0, f"{why} is not retried")
    if attempt >= policy.attempts:
        return RetryDecision(False, 0.0, f"{why}, attempts used up")
    delay = server_delay(headers, now)
    delay = named_delay_s if delay is None else delay
    if delay is None:
        return RetryDecision(True, backoff(attempt, policy, roll), why)
    if delay > policy.retry_after_cap_s:
        return RetryDecision(False, 0.0, f"{why}, the server asks to wait {delay:g} s")
    return RetryDecision(True, delay, f"{why}, the server asks to wait {delay:g} s")


def backoff(attempt: int, policy: RetryPolicy, roll: float) -> float:
    """Seconds to wait after send number `attempt`: min(cap, base * 2^(attempt-1)) * (1 - jitter * roll)."""
    whole = min(policy.cap_s, policy.base_s * 2.0 ** min(attempt - 1, 60))
    return whole * (1.0 - policy.jitter * roll)


def server_delay(headers: Headers, now: float) -> float | None:
    """Seconds that `retry-after-ms` or `retry-after` (seconds or an HTTP date) asks to wait, or None.

    A date in the past is no wait; a value that is neither is as if absent.
    """
    millis = _number(header(headers, "retry-after-ms"))
    if millis is not None:
        return millis / 1000.0
    text = header(headers, "retry-after")
    seconds = _number(text)
    if seconds is not None or text is None:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def _retriable(status: int | None, headers: Headers, code: str | None, attempt: int) -> bool:
    if code in _HOPELESS:
        return False
    if status is None:
        return code != TIMEOUT or attempt == 1
    word = (header(headers, "x-should-retry") or "").strip().lower()
    if word in ("true", "false"):
        return word == "true"
    return status in _RETRIED or status >= 500


def _number(text: str | None) -> float | None:
    """A finite number that is not negative, or None."""
    try:
        value = float(text) if text is not None else -1.0
    except ValueError:
        return None
    return value if 0.0 <= value < float("inf") else None
