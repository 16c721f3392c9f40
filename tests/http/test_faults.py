"""Error envelopes of every server, typed; texts as recorded from the servers named."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logproof.errors import (
    AuthError,
    BadReply,
    ContentFiltered,
    ContextOverflow,
    ModelNotFound,
    RateLimited,
    ServerFault,
    StatusError,
)
from logproof.http.endpoint import endpoint
from logproof.http.exchange import SseEvent
from logproof.http.faults import WireFault, check_type, event_fault, read_fault, redirected, status_error

HERE = endpoint("http://h:8000", env={})
KEY = "sk-test-ABC123"
KEYED = endpoint("http://h:8000", key=KEY, key_env="MY_KEY", env={"MY_KEY": KEY})


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ({"error": {"message": "m", "type": "t", "param": None, "code": "c"}}, WireFault("m", "c")),
        ({"error": {"message": "m", "type": "BadRequestError", "code": 400}}, WireFault("m", "BadRequestError", 400)),
        (
            {"error": {"message": "m", "type": "invalid_request_error", "code": "400"}},
            WireFault("m", "invalid_request_error", 400),
        ),
        ({"error": {"message": "m"}}, WireFault("m")),
        (
            {"error": {"message": "", "type": "internal_server_error"}},
            WireFault('{"message":"","type":"internal_server_error"}', "internal_server_error"),
        ),
        ({"error": "Unauthorized"}, WireFault("Unauthorized")),
        ({"object": "error", "message": "m", "type": "503", "param": None, "code": 503}, WireFault("m", None, 503)),
        ({"detail": "Not Found"}, WireFault("Not Found")),
        ({"detail": [{"loc": ["body"], "msg": "m"}]}, WireFault('[{"loc":["body"],"msg":"m"}]')),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "m"}}, WireFault("m", "overloaded_error")),
        (
            {
                "type": "error",
                "error": {"type": "invalid_request_error", "message": "m", "details": {"error_code": "e"}},
            },
            WireFault("m", "e"),
        ),
        ({"type": "error", "code": "c", "message": "m", "sequence_number": 3}, WireFault("m", "c")),
        (
            {"error": {"code": 400, "message": "m", "status": "INVALID_ARGUMENT"}},
            WireFault("m", "INVALID_ARGUMENT", 400),
        ),
        (
            [{"error": {"code": 429, "message": "m", "status": "RESOURCE_EXHAUSTED"}}],
            WireFault("m", "RESOURCE_EXHAUSTED", 429),
        ),
        (
            {
                "error": {
                    "code": 429,
                    "message": "m",
                    "details": [{"@type": "x"}, {"@type": "RetryInfo", "retryDelay": "12.5s"}],
                }
            },
            WireFault("m", None, 429, 12.5),
        ),
        ({"error": {"code": 429, "message": "m", "details": [{"retryDelay": "soon"}, 7]}}, WireFault("m", None, 429)),
        ({"error": {"message": "m", "code": True}}, WireFault("m")),
        ({"error": {"message": "m", "code": 7}}, WireFault("m")),
        ({"error": None, "detail": "d"}, WireFault("d")),
        ({"hello": 1}, WireFault('{"hello": 1}')),
        ([], WireFault("[]")),
        (7, WireFault("7")),
    ],
)
def test_envelopes(body: object, fault: WireFault) -> None:
    assert read_fault(json.dumps(body).encode()) == fault


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "no text"),
        (b" \n", "no text"),
        (b"Internal Server Error", "Internal Server Error"),
        (b"<html><head><title> 502 Bad Gateway </title></head>", "an HTML page (502 Bad Gateway)"),
        (b"\n<!DOCTYPE html><p>x", "an HTML page"),
        (b'{"error": {"mess', '{"error": {"mess'),
        (b"\xff\xfe", "��"),
    ],
)
def test_bodies_that_are_no_error_object(body: bytes, message: str) -> None:
    assert read_fault(body) == WireFault(message)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=9),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["error", "message", "code", "type", "detail", "details", "status", "retryDelay"]),
                inner,
                max_size=4,
            )
        ),
    )
)
def test_any_json_gives_a_fault(body: object) -> None:
    fault = read_fault(json.dumps(body))
    assert fault.message
    assert fault.status is None or 400 <= fault.status <= 599
    event_fault(SseEvent("error", json.dumps(body)))


OVERFLOWS = [
    "This model's maximum context length is 2048 tokens. However, your prompt contains at least 2049 input tokens",
    "The decoder prompt (length 2100) is longer than the maximum model length of 2048.",
    "The input (2131 tokens) is longer than the model's context length (2048 tokens).",
    "Requested token count exceeds the model's maximum context length of 2048 tokens.",
    "Input length (9 tokens) exceeds the maximum allowed length (8 tokens).",
    "Your input exceeds the context window of this model",
    "prompt is too long: 208310 tokens > 200000 maximum",
    "input length and `max_tokens` exceed context limit: 5 + 6 > 10",
    "The input token count (9) exceeds the maximum number of tokens allowed (8).",
    "the request exceeds the available context size",
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096",
]


@pytest.mark.parametrize("text", OVERFLOWS)
def test_context_overflow_by_text(text: str) -> None:
    assert type(status_error(400, WireFault(text), HERE)) is ContextOverflow


@pytest.mark.parametrize(
    ("status", "fault", "kind"),
    [
        (400, WireFault("m", "context_length_exceeded"), ContextOverflow),
        (413, WireFault("m", "request_too_large"), ContextOverflow),
        (413, WireFault("Request Entity Too Large"), StatusError),
        (400, WireFault("m", "content_filter"), ContentFiltered),
        (400, WireFault("triggering Azure OpenAI's content management policy", "x"), ContentFiltered),
        (401, WireFault("m"), AuthError),
        (403, WireFault("m"), AuthError),
        (400, WireFault("API key not valid. Please pass a valid API key.", "INVALID_ARGUMENT"), AuthError),
        (404, WireFault("The model `nope` does not exist. Valid aliases: smollm2.", "NotFoundError"), ModelNotFound),
        (404, WireFault("models/gemini-9.1 is not found for API version v1beta", "NOT_FOUND"), ModelNotFound),
        (404, WireFault("model: claude-x", "not_found_error"), ModelNotFound),
        (400, WireFault("agenerate_content: Invalid model name passed in model=nope."), ModelNotFound),
        (404, WireFault("m", "model_not_found"), ModelNotFound),
        (404, WireFault("Not Found"), StatusError),
        (404, WireFault("Response with id 'resp_nope' not found.", "invalid_request_error"), StatusError),
        (429, WireFault("m"), RateLimited),
        (500, WireFault("m"), ServerFault),
        (529, WireFault("m"), ServerFault),
        (400, WireFault("m"), StatusError),
        (400, WireFault("smollm2 is not a multimodal model"), StatusError),
    ],
)
def test_kinds(status: int, fault: WireFault, kind: type[StatusError]) -> None:
    error = status_error(status, fault, HERE)
    assert type(error) is kind
    assert (error.status, error.code) == (status, fault.code)


def test_hints_say_what_to_do() -> None:
    assert "MY_KEY; it was sent and refused" in (status_error(401, WireFault("m"), KEYED).hint or "")
    assert "LOGPROOF_API_KEY; it is not set" in (status_error(401, WireFault("m"), HERE).hint or "")
    assert "http://h:8000/v1/models" in (status_error(404, WireFault("m", "model_not_found"), HERE).hint or "")
    assert "is the base URL right (http://h:8000)" in (status_error(404, WireFault("Not Found"), HERE).hint or "")
    assert "shorten the prompt" in (status_error(400, WireFault(OVERFLOWS[0]), HERE).hint or "")
    assert status_error(422, WireFault("m"), HERE).hint is None


def test_a_key_that_the_server_repeats_is_masked() -> None:
    odd = endpoint("http://h", key="plainkey99", env={})
    error = status_error(422, WireFault("header was plainkey99", "code-plainkey99"), odd)
    assert "plainkey99" not in f"{error}{error.code}{error.server_message}{error.hint}"


def test_long_texts_are_cut() -> None:
    error = status_error(400, WireFault("x" * 100_000, "c" * 1000), HERE)
    assert len(str(error)) < 500
    assert len(error.code or "") <= 80


@pytest.mark.parametrize(
    ("event", "status", "code"),
    [
        (
            SseEvent(None, '{"error":{"message":"m","type":"invalid_request_error","code":400,"retryable":false}}'),
            400,
            "invalid_request_error",
        ),
        (SseEvent(None, '{"error":{"message":"m"}}'), 500, None),
        (SseEvent(None, '{"error":"m"}'), 500, None),
        (
            SseEvent("error", '{"type":"error","error":{"type":"overloaded_error","message":"m"}}'),
            529,
            "overloaded_error",
        ),
        (
            SseEvent("error", '{"type":"error","code":"rate_limit_exceeded","message":"m","sequence_number":1}'),
            429,
            "rate_limit_exceeded",
        ),
        (SseEvent(None, '[{"error":{"code":503,"message":"m","status":"UNAVAILABLE"}}]'), 503, "UNAVAILABLE"),
        (SseEvent("error", "m"), 500, None),
    ],
)
def test_error_objects_inside_a_stream(event: SseEvent, status: int, code: str | None) -> None:
    assert event_fault(event) == WireFault("m", code, status)


@pytest.mark.parametrize(
    "event",
    [
        SseEvent(None, "[DONE]"),
        SseEvent(None, '{"error":null,"choices":[]}'),
        SseEvent("response.completed", '{"type":"response.completed","response":{"error":null}}'),
        SseEvent(None, '{"choices":[{"delta":{"content":"\\"error\\""}}]}'),
        SseEvent(None, '{"choices":[{"text":"a"}],"note":["error"]}'),
        SseEvent(None, '{"error" cut'),
        SseEvent(None, '["error"]'),
    ],
)
def test_ordinary_events_are_no_faults(event: SseEvent) -> None:
    assert event_fault(event) is None


def test_an_error_event_without_an_error_object_keeps_its_text() -> None:
    assert event_fault(SseEvent("error", '{"a": 1}')) == WireFault('{"a": 1}', None, 500)


@pytest.mark.parametrize(("kind", "stream"), [("text/html", False), ("text/html", True), ("application/json", True)])
def test_a_reply_of_the_wrong_type_is_refused(kind: str, stream: bool) -> None:
    with pytest.raises(BadReply):
        check_type(kind, stream, HERE)


@pytest.mark.parametrize(("kind", "stream"), [("application/json", False), ("text/event-stream", True), ("", False)])
def test_the_right_types_pass(kind: str, stream: bool) -> None:
    check_type(kind, stream, HERE)


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("https://login.example:8443/sso?token=abc", "a redirect to https://login.example:8443/sso"),
        ("/v2/", "a redirect to http://h:8000/v2/"),
        ("http://me:pw@x/y", "a redirect to http://x/y"),
        (f"http://x/{KEY}", "a redirect to http://x/[redacted]"),
        (None, "a redirect without a target"),
        ("http://[::1", "a redirect to a malformed URL"),
    ],
)
def test_a_redirect_names_its_target_and_no_secret(location: str | None, message: str) -> None:
    assert redirected(307, location, KEYED).server_message == message
