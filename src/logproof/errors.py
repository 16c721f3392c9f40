"""Every error that logproof raises on purpose, and what the command line makes of it.

    LogproofError                 base; one line of text, optional hint on a line of its own
    |- UsageError                 the caller's input is wrong; nothing was sent             exit 3
    |  |- InvalidRequest          a request breaks its own invariants
    |  |- DatasetError            a data row is wrong, named by file and line
    |  |- RequestRefused          leaves that the dialect refuses or nobody decided
    |  `- PlanRefused             dialect or endpoint cannot give what a task needs
    |- EndpointError              the other side, or the way to it                          exit 4
    |  |- TransportError          no usable HTTP reply came
    |  |  `- TimeoutFired         a named time limit ended the attempt
    |  |- StatusError             the server answered with an error
    |  |  |- ContextOverflow      the prompt does not fit the model's context
    |  |  |- AuthError            401 or 403
    |  |  |- ModelNotFound        the server does not serve that model
    |  |  |- RateLimited          429
    |  |  |- ContentFiltered      a filter refused the request
    |  |  `- ServerFault          5xx
    |  |- NoEngine                what answers at a URL is no inference server
    |  |- EngineGone              no endpoint of a run answers any more
    |  `- BadReply                a reply that must not become a number, with its JSON path
    |     |- MissingChannel       a result that was asked for is absent
    |     |- SpoiledTopList       another request on the server spoiled the lists of rivals
    |     |- ReplayNotEnforced    a replay came back with other tokens than it was given
    |     `- OutputContractError  structured output that is cut, invalid or off its schema
    |- EngineError                a local engine did not start, or died                     exit 4
    |- StoreError                 a run store or output file cannot be written or read      exit 5
    |  |- InputError              a file or run that was named is not there or not readable exit 3
    |  |- StoreLocked             another run writes this store
    |  `- ResumeRefused           the stored run differs from the one that would resume it  exit 3
    `- ArtifactError              an artifact is malformed or cannot be replayed            exit 3

Exit codes of the command line: 0 done; 1 done, and the answer is no (failed samples, parity broken,
verdict invalid); 2 done, inconclusive or suspect; 3 usage, an input file that is missing, unreadable
or malformed included; 4 endpoint or engine; 5 store or disk; 130 interrupted. No message ever holds a
key: texts that come from outside pass `clip`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

CLIP_CHARS = 400
"""Longest piece of foreign text (a server's message, a body) that an error message repeats."""

REDACTED = "[redacted]"
"""What stands in place of a key, in whatever is printed, stored or recorded."""

_SECRET = re.compile(
    r"(?i)(bearer\s+|(?:api[-_]?key|authorization|x-goog-api-key|token)[\"']?\s*[:=]\s*[\"']?)(?:bearer\s+)?[^\s\"',;}]+"
    r"|\b(sk|hf|gsk|AIza)[-_][A-Za-z0-9_\-]{6,}"
)


def clip(text: str, limit: int = CLIP_CHARS) -> str:
    """One printable line of foreign text: secrets masked, white space folded, at most `limit` characters."""
    line = " ".join(_SECRET.sub(lambda m: f"{m.group(1) or ''}{REDACTED}", text).split())
    line = "".join(c if c.isprintable() else "?" for c in line)
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


class LogproofError(Exception):
    """Base of all errors raised on purpose.

    message: one line that says what is wrong. hint: what to do about it, or None.
    """

    exit_code: ClassVar[int] = 3

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message


class UsageError(LogproofError):
    """The caller's input is wrong; nothing was sent."""


class InvalidRequest(UsageError):
    """A request breaks its own invariants (two inputs, a negative width, n of 0)."""


class DatasetError(UsageError):
    """A data row cannot be used; the message names file and line."""


class RequestRefused(UsageError):
    """Active leaves that the dialect refuses, or that nobody decided: all of them at once.

    refusals: pairs (leaf path, reason), in leaf order.
    """

    def __init__(self, dialect: str, refusals: Sequence[tuple[str, str]]) -> None:
        self.dialect = dialect
        self.refusals = tuple(refusals)
        what = "; ".join(f"{leaf}: {reason}" for leaf, reason in self.refusals)
        super().__init__(f"{dialect} refuses this request: {what}")


class PlanRefused(UsageError):
    """A task or --require needs what this dialect or endpoint cannot give."""


class EndpointError(LogproofError):
    """The other side, or the way to it, failed. attempts: how often the request was sent."""

    exit_code = 4
    attempts: int = 1


class TransportError(EndpointError):
    """No usable HTTP reply came (refused connection, reset, cut body, too large)."""


class TimeoutFired(TransportError):
    """A time limit ended the attempt. which: connect, first_byte, idle or total; seconds: the limit."""

    def __init__(self, which: str, seconds: float, *, hint: str | None = None) -> None:
        self.which = which
        self.seconds = seconds
        super().__init__(f"the {which} time limit of {seconds:g} s passed", hint=hint)


class StatusError(EndpointError):
    """The server answered with an error status or an error object.

    status: HTTP status. code: the server's own error code or type. server_message: its text, clipped.
    """

    def __init__(self, status: int, server_message: str, *, code: str | None = None, hint: str | None = None) -> None:
        self.status = status
        self.code = code
        self.server_message = clip(server_message)
        super().__init__(f"HTTP {status}: {self.server_message}", hint=hint)


class ContextOverflow(StatusError):
    """The prompt, or prompt and completion together, do not fit the model's context."""


class AuthError(StatusError):
    """401 or 403: the key is missing, wrong or not allowed."""


class ModelNotFound(StatusError):
    """The server does not serve the named model."""


class RateLimited(StatusError):
    """429, after the retries that the policy allows."""


class ContentFiltered(StatusError):
    """A content filter refused the request."""


class ServerFault(StatusError):
    """5xx, after the retries that the policy allows."""


class NoEngine(EndpointError):
    """What answers at a URL is no inference server that a probe knows."""


class EngineGone(EndpointError):
    """No endpoint of a run answers as long as the run waits, or another engine does; what is stored is kept."""


class BadReply(EndpointError):
    """A reply that must not become a number. path: JSON pointer of the first fault in the reply body."""

    def __init__(self, message: str, *, path: str = "", hint: str | None = None) -> None:
        self.path = path
        super().__init__(f"bad reply at {path or '/'}: {message}", hint=hint)


class MissingChannel(BadReply):
    """A result that was asked for is absent from the reply."""


class SpoiledTopList(BadReply):
    """A list of rivals that another request on the server spoiled: sent again apart from those, it may come whole."""

    HINT = "label scores in the same batch do this to vLLM's lists: send the request again, apart from those"

    def __init__(self, path: str) -> None:
        super().__init__("an impossible rival in a top list that leaves mass over", path=path, hint=self.HINT)


class ReplayNotEnforced(BadReply):
    """The engine answered a replay with other tokens than it was given, so it enforced nothing."""


class OutputContractError(BadReply):
    """Structured output that is cut, not JSON, or off the caller's schema."""


class EngineError(LogproofError):
    """A local engine did not start, died or could not be stopped."""

    exit_code = 4


class StoreError(LogproofError):
    """A run store or output file cannot be written or read."""

    exit_code = 5


class InputError(StoreError):
    """A file or run that was named is not there, is none, or may not be read."""

    exit_code = 3


class StoreLocked(StoreError):
    """Another run writes this store."""


class ResumeRefused(StoreError):
    """The stored run differs from the run that would resume it; the message holds the difference."""

    exit_code = 3


class ArtifactError(LogproofError):
    """An artifact is malformed, or cannot be replayed as it stands."""
