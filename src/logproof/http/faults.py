"""What a server said when it refused: envelope -> `WireFault` -> one typed error of logproof.errors.

Envelopes read: OpenAI, vLLM and llama.cpp `{"error": {message, type, code}}` (code a text, or the integer status),
SGLang `{"error": "text"}` and flat `{"object": "error", message, type, code}`, FastAPI `{"detail": ...}`,
Anthropic `{"type": "error", "error": {type, message, details}}`, Gemini `{"error": {code, status, message,
details}}` and the same in an array, the Responses stream's `{"type": "error", code, message}`, HTML, plain
text, nothing.
"""

from __future__ import annotations

import re
from urllib.parse import urljoin, urlsplit

import msgspec

from logproof.errors import (
    AuthError,
    BadReply,
    ContentFiltered,
    ContextOverflow,
    ModelNotFound,
    RateLimited,
    ServerFault,
    StatusError,
    clip,
)
from logproof.http.endpoint import Endpoint
from logproof.http.exchange import SseEvent

MAX_ERROR_BYTES = 65_536
"""Longest part of an error body that is read."""

_MAX_CODE = 80

_OVERFLOW_CODES = frozenset({"context_length_exceeded", "request_too_large", "exceed_context_size_error"})
_OVERFLOW = re.compile(
    r"maximum context length|longer than the model's context length|longer than the maximum model length"
    r"|exceeds? the (?:context window|maximum (?:allowed length|number of tokens allowed)|available context size)"
    r"|exceeds? context limit|exceeds the model's maximum|prompt is too long|context_length_exceeded"
    r"|`inputs` (?:must have less than|tokens \+ `max_new_tokens` must be)",
    re.IGNORECASE,
)
_FILTER_CODES = frozenset(
    {"content_filter", "content_policy_violation", "misalignment_policy_violation", "responsibleaipolicyviolation"}
)
_FILTER = re.compile(r"content management policy|flagged by (?:our|the) (?:content|safety)", re.IGNORECASE)
_MODEL = re.compile(
    r"\bmodels?[ /`:'\"][^,]{0,200}?(?:does not exist|not found|is not served)|invalid model name|^model: ",
    re.IGNORECASE,
)
_BAD_KEY = re.compile(r"api key not valid|invalid api key|incorrect api key|API_KEY_INVALID", re.IGNORECASE)
_STATUS_OF_CODE = {
    "overloaded_error": 529,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "invalid_request_error": 400,
    "badrequesterror": 400,
    "timeout_error": 504,
    "context_length_exceeded": 400,
    "content_filter": 400,
    "invalid_prompt": 400,
}
"""HTTP status that an error code stands for, where the object itself names none."""


class WireFault(msgspec.Struct, frozen=True):
    """An error object. message: the server's text, whole. code: its own code, or its type. status: the
    status that it names, or None. delay_s: the wait of google.rpc.RetryInfo, seconds."""

    message: str
    code: str | None = None
    status: int | None = None
    delay_s: float | None = None


def read_fault(body: bytes | str) -> WireFault:
    """The error that an error body holds; any body gives one."""
    text = body if isinstance(body, str) else body[:MAX_ERROR_BYTES].decode(errors="replace")
    try:
        decoded: object = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return WireFault(_plain(text))
    return _of_json(decoded) or WireFault(_plain(text))


def event_fault(event: SseEvent) -> WireFault | None:
    """The error object that an event of a 200 stream is, or None for an ordinary event.

    status: the one that the object names or its code stands for, else 500.
    """
    is_error_event = event.event == "error"
    if not is_error_event and '"error"' not in event.data:
        return None
    try:
        decoded: object = msgspec.json.decode(event.data)
    except msgspec.DecodeError:
        decoded = None
    body = decoded[0] if isinstance(decoded, list) and decoded else decoded
    if not is_error_event and not (isinstance(body, dict) and (body.get("error") or body.get("type") == "error")):
        return None
    fault = _of_json(body) or WireFault(_plain(event.data))
    status = fault.status or _STATUS_OF_CODE.get((fault.code or "").lower(), 500)
    return msgspec.structs.replace(fault, status=status)


def error_in_body(text: str) -> StatusError | None:
    """The typed error of an error object that is the whole body, or an event, of a 200; None for any other text."""
    fault = event_fault(SseEvent(None, text))
    if fault is None:
        return None
    status = fault.status or 500
    return _kind(status, fault)(status, fault.message, code=clip(fault.code, _MAX_CODE) if fault.code else None)


def status_error(status: int, fault: WireFault, endpoint: Endpoint) -> StatusError:
    """The typed error of a fault, with the server's own words (bounded, keys masked) and a hint."""
    message = endpoint.mask(fault.message)
    code = clip(endpoint.mask(fault.code), _MAX_CODE) if fault.code else None
    kind = _kind(status, fault)
    return kind(status, message, code=code, hint=_hint(status, kind, endpoint))


def check_type(content_type: str, stream: bool, endpoint: Endpoint) -> None:
    """Raise BadReply for a 2xx reply that is a web page, or that is no event stream where one was asked."""
    if content_type in ("text/html", "application/xhtml+xml"):
        raise BadReply(
            f"{endpoint.display} answered with an HTML page",
            hint="the base URL leads to a web page or a login, not to an inference API",
        )
    if stream and content_type != "text/event-stream":
        text = f"a stream was asked for, the reply is {clip(content_type, _MAX_CODE)}"
        raise BadReply(text, hint="this server does not stream on this route: ask without streaming")


def redirected(status: int, location: str | None, endpoint: Endpoint) -> StatusError:
    """The error of a redirect, which is never followed: a key must not travel to another host."""
    if not location:
        return StatusError(status, "a redirect without a target", hint="is the base URL right?")
    try:
        target = urlsplit(urljoin(endpoint.root, location))
    except ValueError:
        return StatusError(status, "a redirect to a malformed URL", hint="is the base URL right?")
    place = endpoint.mask(f"{target.scheme}://{target.netloc.rpartition('@')[2]}{target.path}")
    return StatusError(status, f"a redirect to {place}", hint="redirects are not followed: correct the base URL")


def _of_json(decoded: object) -> WireFault | None:
    if isinstance(decoded, list):
        return _of_json(decoded[0]) if decoded else None
    if not isinstance(decoded, dict):
        return None
    inner = decoded.get("error")
    if isinstance(inner, dict):
        return _of_object(inner)
    if isinstance(inner, str) and inner:
        return WireFault(inner)
    if "message" in decoded:
        return _of_object(decoded)
    detail = decoded.get("detail")
    if not detail:
        return None
    return WireFault(detail if isinstance(detail, str) else msgspec.json.encode(detail).decode())


def _of_object(error: dict[object, object]) -> WireFault:
    message = error.get("message")
    details = error.get("details")
    return WireFault(
        message=message if isinstance(message, str) and message else msgspec.json.encode(error).decode(),
        code=_code(error, details),
        status=_status(error.get("code")),
        delay_s=_retry_delay(details),
    )


def _code(error: dict[object, object], details: object) -> str | None:
    """The most telling of a fault's names: Anthropic's error_code, code, Gemini's status, type."""
    error_code = details.get("error_code") if isinstance(details, dict) else None
    for name in (error_code, error.get("code"), error.get("status"), error.get("type")):
        if isinstance(name, str) and name and name != "error" and not name.isdecimal():
            return name
    return None


def _status(code: object) -> int | None:
    """An HTTP error status given as a number or a text of digits."""
    number = int(code) if isinstance(code, str) and re.fullmatch(r"[0-9]{3}", code) else code
    return number if isinstance(number, int) and 400 <= number <= 599 else None


def _retry_delay(details: object) -> float | None:
    """Seconds of the first RetryInfo among google.rpc details ("12.5s")."""
    for detail in details if isinstance(details, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, dict) else None
        if isinstance(delay, str) and re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?s", delay):
            return float(delay[:-1])
    return None


def _plain(text: str) -> str:
    """Readable part of a body that is no error object: an HTML page gives its title, nothing a word."""
    if re.match(r"\s*(?:<!doctype html|<html)", text, re.IGNORECASE):
        title = re.search(r"<title[^>]*>([^<]*)</title>", text, re.IGNORECASE)
        return f"an HTML page ({title[1].strip()})" if title else "an HTML page"
    return text if text.strip() else "no text"


def _kind(status: int, fault: WireFault) -> type[StatusError]:
    code, message = (fault.code or "").lower(), fault.message
    if status in (401, 403) or _BAD_KEY.search(message):
        return AuthError
    if code in _OVERFLOW_CODES or _OVERFLOW.search(message):
        return ContextOverflow
    if code in _FILTER_CODES or _FILTER.search(message):
        return ContentFiltered
    if code == "model_not_found" or (status in (400, 404) and _MODEL.search(message)):
        return ModelNotFound
    if status == 429:
        return RateLimited
    return ServerFault if status >= 500 else StatusError


def _hint(status: int, kind: type[StatusError], endpoint: Endpoint) -> str | None:
    if kind is AuthError:
        state = "was sent and refused" if endpoint.key is not None else "is not set, so no key was sent"
        return f"the key is read from the environment variable {endpoint.key_env}; it {state}"
    if kind is ModelNotFound:
        return f"GET {endpoint.display}/v1/models lists what is served"
    if kind is ContextOverflow:
        return "shorten the prompt, ask for fewer tokens, or serve the model with a longer context"
    if status in (404, 405):
        return f"is the base URL right ({endpoint.display}), and does this server speak the dialect?"
    return None
