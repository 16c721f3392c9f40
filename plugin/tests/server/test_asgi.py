"""The middleware against a fake app: what passes untouched, what is refused, what is rewritten, what is added."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from logproof_vllm import fields, runtime
from logproof_vllm.fields import FieldLimits, FieldPlan, ModeChoice, Vocabulary
from logproof_vllm.runtime import PASSED, STATUS, Binding
from logproof_vllm.server import asgi, report
from logproof_vllm.server.asgi import Middleware
from logproof_vllm.server.body import GENERATE_PATH

JSON = [(b"content-type", b"application/json"), (b"content-length", b"0")]
REPLAY = FieldPlan((5, 6), ModeChoice("raw_logprobs", "request"))


@pytest.fixture(autouse=True)
def status(monkeypatch: pytest.MonkeyPatch) -> runtime.Status:
    """A process whose plugin is ready."""
    ready = runtime.Status(canary=PASSED, binding=Binding(Vocabulary(100), 64, "v1", "raw_logprobs", False))
    for name, value in vars(ready).items():
        monkeypatch.setattr(STATUS, name, value)
    return STATUS


class App:
    """Records what reached it and answers with `chunks`."""

    def __init__(self, chunks: list[bytes], kind: bytes = b"application/json", fill: bool = True) -> None:
        self.chunks = chunks
        self.kind = kind
        self.fill = fill
        self.status = 200
        self.body: bytes | None = None
        self.headers: list[tuple[bytes, bytes]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        self.body = message["body"]
        self.headers = scope["headers"]
        current = report.CURRENT.get()
        if self.fill and current is not None:
            current.fill(REPLAY, "raw_logprobs", "tag", False)
        headers = [(b"content-type", self.kind), (b"content-length", str(len(b"".join(self.chunks))).encode())]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        for i, chunk in enumerate(self.chunks):
            await send({"type": "http.response.body", "body": chunk, "more_body": i + 1 < len(self.chunks)})


def call(app: App, body: bytes, path: str = "/v1/completions", **scope: Any) -> tuple[int, bytes, dict[bytes, bytes]]:
    """One POST in two body parts through the middleware: status, body and headers of the reply."""
    parts = [{"type": "http.request", "body": body[:7], "more_body": True}, {"type": "http.request", "body": body[7:]}]
    sent: list[Any] = []

    async def receive() -> Any:
        return parts.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    full = {"type": "http", "method": "POST", "path": path, "headers": list(JSON), **scope}
    asyncio.run(Middleware(app)(full, receive, send))
    start = next(m for m in sent if m["type"] == "http.response.start")
    return start["status"], b"".join(m.get("body", b"") for m in sent if "body" in m), dict(start["headers"])


def dump(**body: object) -> bytes:
    return json.dumps(body).encode()


def test_a_plain_request_and_its_reply_are_untouched() -> None:
    app = App([b'{"a": 1}'])
    body = dump(prompt='says "enforced ids"', stream=False)
    assert call(app, body)[1] == b'{"a": 1}'
    assert app.body == body
    assert app.headers == JSON


@pytest.mark.parametrize("scope", [{"method": "GET"}, {"headers": [(b"content-type", b"text/plain")]}])
def test_other_requests_are_not_read(scope: dict[str, Any]) -> None:
    app = App([b"ok"])
    call(app, dump(enforced_token_ids=[1]), "/v1/audio", **scope)
    assert app.body is not None
    assert len(app.body) == 7


def test_the_report_is_spliced_into_a_json_reply() -> None:
    status, reply, headers = call(App([b'{"a": 1.50,', b' "b": []}\n']), dump(enforced_token_ids=[5, 6]))
    assert status == 200
    assert reply.startswith(b'{"a": 1.50, "b": [],"logproof":{')
    assert int(headers[b"content-length"]) == len(reply)
    assert json.loads(reply)["logproof"] == {
        "enforced": 2, "eos_appended": False, "logprobs_mode": "raw_logprobs", "mode_source": "request",
        "mode_evidence": {}, "grammar": None,
    }  # fmt: skip


@pytest.mark.parametrize("chunks", [[b'data: {"id":"x","choices":[]}\n\ndata: [DONE]\n\n'],
                                    [b'data: {"id":"x","cho', b'ices":[]}\n\nda', b"ta: [DO", b"NE]\n\n"]])  # fmt: skip
def test_a_stream_gains_one_event_before_done(chunks: list[bytes]) -> None:
    _, reply, _ = call(App(chunks, b"text/event-stream; charset=utf-8"), dump(enforced_token_ids=[5, 6]))
    events = [line[6:] for line in reply.split(b"\n") if line.startswith(b"data: ")]
    assert events[0] == b'{"id":"x","choices":[]}'
    assert json.loads(events[1])["id"] == "x"
    assert json.loads(events[1])["logproof"]["enforced"] == 2
    assert events[2:] == [b"[DONE]"]


def test_a_stream_without_done_is_passed_whole() -> None:
    _, reply, _ = call(App([b"data: {bad", b""], b"text/event-stream"), dump(enforced_token_ids=[5]))
    assert reply == b"data: {bad"


def test_a_stream_that_told_an_error_gets_no_report() -> None:
    chunks = [b'data: {"id":"x","choices":[]}\n\n', b'data: {"error":{"code":500}}\n\n', b"data: [DONE]\n\n"]
    _, reply, _ = call(App(chunks, b"text/event-stream"), dump(enforced_token_ids=[5, 6]))
    assert reply == b"".join(chunks)


def test_errors_and_unfilled_replies_pass_as_they_are() -> None:
    app = App([b'{"error": 1}'])
    app.status = 400
    assert call(app, dump(enforced_token_ids=[5]))[1] == b'{"error": 1}'
    assert call(App([b'{"x": 1}'], fill=False), dump(logprobs_mode=None))[1] == b'{"x": 1}'


OTHER_PATHS = ["/v1/responses", "/v1/messages", "/tokenize", "/invocations", "/v1/completions/render",
               "/v1/chat/completions/batch"]  # fmt: skip


@pytest.mark.parametrize("path", OTHER_PATHS)
@pytest.mark.parametrize("field", fields.FIELDS)
def test_every_other_path_refuses_every_field(path: str, field: str) -> None:
    app = App([b"{}"])
    status, reply, _ = call(app, dump(**{field: True}), path)
    assert status == 400
    assert app.body is None
    error = json.loads(reply)["error"]
    assert error["type"] == "BadRequestError"
    assert error["param"] == field
    assert path in error["message"]


FORM = [(b"content-type", b"multipart/form-data; boundary=b")]
URLENCODED = [(b"content-type", b"application/x-www-form-urlencoded")]
FORMS = [(FORM, b'--b\r\nContent-Disposition: form-data; name="enforced_str"\r\n\r\nx\r\n--b--'),
         (FORM, b"--b\r\nContent-Disposition: form-data; name=logprobs_mode\r\n\r\nx\r\n--b--"),
         (URLENCODED, b"model=x&enforced_token_ids=5"), (URLENCODED, b"enforced_tokens=5")]  # fmt: skip


@pytest.mark.parametrize(("headers", "body"), FORMS)
def test_forms_are_refused_too(headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    app = App([b"{}"])
    status, reply, _ = call(app, body, "/v1/audio/transcriptions", headers=headers)
    assert (status, app.body) == (400, None)
    assert b"/v1/audio/transcriptions cannot enforce it" in reply


@pytest.mark.parametrize("headers", [FORM, URLENCODED])
def test_other_forms_pass(headers: list[tuple[bytes, bytes]]) -> None:
    app = App([b"{}"])
    body = b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nsays enforced_str\r\n--b--'
    assert call(app, body, "/v1/audio/transcriptions", headers=headers)[0] == 200
    assert app.body == body


def test_every_app_of_the_process_gets_the_middleware_innermost() -> None:
    """Also where vLLM loads no endpoint plugin: a field must never be dropped."""

    class Fast:
        def __init__(self, name: str) -> None:
            self.name = name
            self.added: list[Any] = []

        def add_middleware(self, kind: Any) -> None:
            self.added.append(kind)

    made: Any = type("Wrapped", (Fast,), {"__init__": asgi.wrap_app(Fast.__init__)})("x")
    assert (made.name, made.added) == ("x", [Middleware])


@pytest.mark.parametrize(
    "body",
    [b'{"enforced\\u005ftoken_ids": [1]}', '{"enforced_token_ids": [1]}'.encode("utf-16"),
     '{"enforced_token_ids": [1]}'.encode("utf-32"), b'{"enforced_token_ids": null, "enforced_token_ids": [1]}'],
)  # fmt: skip
def test_names_cannot_hide(body: bytes) -> None:
    assert call(App([b"{}"]), body, "/v1/responses")[0] == 400


HARMLESS = [b'"enforced_token_ids"', b'["enforced_token_ids"]', b'{"enforced_token_ids": ', b"[" * 99999, b"",
            b'{"p": "\\"enforced_token_ids\\""}', b'{"enforced_token_ids": null}']  # fmt: skip


@pytest.mark.parametrize("body", HARMLESS)
def test_bodies_that_set_no_field_reach_the_server(body: bytes) -> None:
    app = App([b"{}"], fill=False)
    call(app, body, "/v1/responses")
    assert app.body == body


def test_the_body_ceiling_holds_only_where_the_fields_are_used(status: runtime.Status) -> None:
    status.limits = FieldLimits(body_bytes=100)
    assert call(App([b"{}"]), dump(enforced_token_ids=[1], prompt="x" * 100))[0] == 400
    assert call(App([b"{}"]), dump(prompt="x" * 100))[0] == 200


def test_a_mounted_server_and_a_second_copy() -> None:
    app = App([b"{}"])
    status, _, _ = call(app, dump(enforced_token_ids=[1]), "/mount/v1/responses", root_path="/mount")
    assert status == 400
    assert call(app, dump(enforced_token_ids=[1]), "/mount/v1/completions/", root_path="/mount")[0] == 200
    assert call(app, dump(enforced_token_ids=[1]), "/v1/responses", **{asgi.SEEN: True})[0] == 200


def test_a_client_that_leaves_while_sending_is_dropped() -> None:
    async def receive() -> Any:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        raise AssertionError

    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": list(JSON)}
    asyncio.run(Middleware(App([]))(scope, receive, send))


def test_the_app_still_hears_a_disconnect() -> None:
    seen: list[str] = []
    parts = [{"type": "http.request", "body": b'{"enforced_token_ids":[5]}'}, {"type": "http.disconnect"}]

    async def app(scope: Any, receive: Callable[[], Awaitable[Any]], send: Any) -> None:
        seen.extend([(await receive())["type"], (await receive())["type"]])

    async def receive() -> Any:
        return parts.pop(0)

    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": []}

    async def send(message: Any) -> None:
        raise AssertionError

    asyncio.run(Middleware(app)(scope, receive, send))
    assert seen == ["http.request", "http.disconnect"]


def generate(**body: object) -> tuple[int, dict[str, Any], App]:
    app = App([b'{"choices":[]}'], fill=False)
    status, reply, _ = call(app, dump(token_ids=[1], **body), GENERATE_PATH)
    return status, json.loads(reply), app


def handed_on(app: App) -> dict[str, Any]:
    assert app.body is not None
    assert dict(app.headers)[b"content-length"] == str(len(app.body)).encode()
    return dict(json.loads(app.body))


def test_generate_gets_the_canonical_entry_and_a_length() -> None:
    status, reply, app = generate(sampling_params={"logprobs": 1, "extra_args": {"x": 1}}, enforced_token_ids=[5, 6])
    body = handed_on(app)
    assert status == 200
    assert body["sampling_params"]["max_tokens"] == 2
    extra = body["sampling_params"]["extra_args"]
    assert (extra["x"], extra["logproof"]["ids"], extra["logproof"]["mode"]) == (1, [5, 6], None)
    assert "enforced_token_ids" not in body
    assert reply["logproof"]["enforced"] == 2


def test_generate_takes_the_fields_inside_extra_args_too() -> None:
    _, _, app = generate(sampling_params={"extra_args": {"logprobs_mode": "processed_logprobs"}})
    extra = handed_on(app)["sampling_params"]["extra_args"]
    assert extra["logproof"]["mode"] == "processed_logprobs"
    assert "logprobs_mode" not in extra


def test_generate_with_null_fields_is_plain() -> None:
    _, reply, app = generate(sampling_params={}, enforced_token_ids=None)
    assert handed_on(app) == {"token_ids": [1], "sampling_params": {}, "enforced_token_ids": None}
    assert "logproof" not in reply


BAD_GENERATE: list[dict[str, object]] = [
    {"enforced_token_ids": [5], "sampling_params": {"max_tokens": 1.0}},
    {"enforced_token_ids": [5], "sampling_params": {"max_tokens": "1"}},
    {"enforced_token_ids": [5], "sampling_params": {"max_tokens": True}},
    {"sampling_params": {"enforced_token_ids": [5]}},
    {"sampling_params": {"logprobs_mode": "raw_logprobs"}},
    {"enforced_token_ids": [100], "sampling_params": {}},
    {"enforced_token_ids": [True], "sampling_params": {}},
    {"enforced_token_ids": [5], "sampling_params": {"n": 2}},
    {"enforced_token_ids": [5] * 64, "sampling_params": {}},
    {"enforced_token_ids": [5, 6], "sampling_params": {"max_tokens": 1}},
    {"enforced_token_ids": [5], "sampling_params": {"prompt_logprobs": 0}},
    {"enforced_token_ids": [5], "sampling_params": {"trace_decode_token_ids": [1]}},
    {"enforced_token_ids": [5], "sampling_params": 3},
    *({"enforced_token_ids": [5], "sampling_params": {"extra_args": bad}} for bad in ([1], "x", 5, True)),
    {"enforced_token_ids": [5]},
    {"sampling_params": {"extra_args": {"logproof": {"ids": [1], "mode": None, "tag": "x"}}}},
    {"sampling_params": {"extra_args": {"enforced_token_ids": [1.0]}}},
    {"enforced_token_ids": [5], "sampling_params": {"extra_args": {"enforced_token_ids": [6]}}},
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("body", BAD_GENERATE, ids=str)
def test_generate_refuses_before_the_server_answers(body: dict[str, object], stream: bool) -> None:
    status, reply, app = generate(stream=stream, **body)
    assert status == 400
    assert app.body is None
    assert reply["error"]["code"] == 400


def test_generate_is_refused_while_the_plugin_is_not_ready(status: runtime.Status) -> None:
    status.canary = "the worker has no plugin"
    code, reply, _ = generate(enforced_token_ids=[5], sampling_params={})
    assert code == 400
    assert "the worker has no plugin" in reply["error"]["message"]


def test_the_grammar_report_names_the_position(status: runtime.Status, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fetch(engine: object, tag: str) -> int:
        assert tag == "tag"
        return 7

    status.engine = object()
    monkeypatch.setattr(asgi.report, "fetch_off_at", fetch)
    current = report.Report()
    current.fill(REPLAY, "raw_logprobs", "tag", grammar=True)
    value = asyncio.run(asgi.Replier(lambda message: asyncio.sleep(0), current)._value())
    assert value["grammar"] == {"off_at": 7}
    assert report.body(current, None)["grammar"] == "kept"


def test_a_reply_that_is_no_object_is_left_alone() -> None:
    assert report.into_json(b"[1]", {}) == b"[1]"
    assert report.into_json(b"{ }", {"a": 1}) == b'{ "logproof":{"a":1}}'
