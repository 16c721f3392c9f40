"""What happens to one body: which are refused, which change, and how."""

from __future__ import annotations

import json
from typing import Any

import pytest

from logproof_vllm import fields, runtime
from logproof_vllm.fields import FieldLimits, Vocabulary
from logproof_vllm.refusal import Refused
from logproof_vllm.runtime import PASSED, STATUS, Binding
from logproof_vllm.server import body, report
from logproof_vllm.server.body import MODEL_PATHS

TEXT = MODEL_PATHS[1]


@pytest.fixture(autouse=True)
def status(monkeypatch: pytest.MonkeyPatch) -> runtime.Status:
    vocabulary = Vocabulary(100, 2, lambda text: [byte - 60 for byte in text.encode()])
    ready = runtime.Status(canary=PASSED, binding=Binding(vocabulary, 64, "v1", "raw_logprobs", False))
    for name, value in vars(ready).items():
        monkeypatch.setattr(STATUS, name, value)
    return STATUS


def prepare(path: str = TEXT, **given: Any) -> tuple[dict[str, Any], report.Report, bool]:
    """The body handed on, the report, and whether its bytes are the client's own."""
    current = report.Report()
    sent = json.dumps(given).encode()
    handed = body.prepare(path, sent, current)
    return json.loads(handed), current, handed is sent


@pytest.mark.parametrize("path", MODEL_PATHS)
@pytest.mark.parametrize(
    ("given", "length"),
    [({"enforced_token_ids": [5, 6]}, 2), ({"enforced_str": "ab"}, 3),
     ({"enforced_token_ids": [5], "max_tokens": None}, 1)],
)  # fmt: skip
def test_an_unset_length_becomes_the_lists(path: str, given: dict[str, Any], length: int) -> None:
    """The server then refuses by its own sums, before a stream begins, what does not fit behind the prompt."""
    handed, current, _ = prepare(path, prompt="x", **given)
    assert handed["max_tokens"] == length
    assert handed["prompt"] == "x"
    assert current.body_plan is not None
    assert len(current.body_plan.ids) == length


@pytest.mark.parametrize(("path", "name"), [(path, name) for path, names in body.LENGTHS.items() for name in names])
def test_a_given_length_and_a_mode_alone_keep_the_bytes(path: str, name: str) -> None:
    assert prepare(path, enforced_token_ids=[5], **{name: 9})[2]
    assert prepare(path, enforced_token_ids=[5], **{name: 0})[2]
    assert prepare(path, logprobs_mode="raw_logprobs")[2]


def test_completions_ignores_the_chat_routes_length_and_so_do_we() -> None:
    assert prepare(TEXT, enforced_token_ids=[5] * 20, max_completion_tokens=30)[0]["max_tokens"] == 20


@pytest.mark.parametrize(
    ("given", "parameter", "words"),
    [({"enforced_token_ids": [100]}, "enforced_token_ids[0]", "outside the vocabulary"),
     ({"enforced_token_ids": []}, "enforced_token_ids", "empty"),
     ({"enforced_token_ids": [5] * 65}, "enforced_token_ids", "ceiling is 64"),
     ({"logprobs_mode": "x"}, "logprobs_mode", "one of"),
     ({"enforced_token_id": [5]}, None, "no such field"), ({"enforced_ids": [5]}, None, "no such field"),
     ({"enforced_\ud800": 1}, None, "no such field"),
     *(({nest: {"enforced_token_ids": [5]}}, nest, "top level") for nest in
       ("sampling_params", "extra_args", "extra_body", "vllm_xargs")),
     ({"extra_body": {"logproof": {}}}, "extra_body", "top level")],
)  # fmt: skip
@pytest.mark.parametrize("path", [*MODEL_PATHS, "/v1/responses", "/v1/messages"])
def test_what_would_be_dropped_or_is_wrong_is_refused(
    path: str, given: dict[str, Any], parameter: str | None, words: str
) -> None:
    with pytest.raises(Refused) as caught:
        prepare(path, prompt="x", **given)
    if path in MODEL_PATHS:
        assert words in str(caught.value)
        assert caught.value.parameter == parameter


def test_names_deep_inside_a_body_are_the_clients_own() -> None:
    """A schema, a message or a tool may speak of anything."""
    schema = {"properties": {"logprobs_mode": {"enum": ["a"]}, "enforced_str": {}}}
    assert prepare(prompt="x", structured_outputs={"json": schema}, messages=[{"enforced_x": 1}])[2]


DEEP = b'{"enforced_token_ids": [5], "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


def test_a_body_nested_too_deep_is_refused() -> None:
    with pytest.raises(Refused, match="nested too deep"):
        body.prepare(TEXT, DEEP, report.Report())


def test_the_same_key_twice_means_its_last_value_as_for_the_server() -> None:
    text = b'{"enforced_token_ids": [999], "enforced_token_ids": [5], "max_tokens": 9}'
    current = report.Report()
    assert body.prepare(TEXT, text, current) is text
    assert current.body_plan is not None
    assert current.body_plan.ids == (5,)
    with pytest.raises(Refused):
        body.prepare(TEXT, text.replace(b"[5]", b"[NaN]"), report.Report())


def spelled(number: bytes) -> report.Report:
    """The report of a body whose list holds a number spelled so."""
    current = report.Report()
    text = b'{"enforced_token_ids": [' + number + b'], "max_tokens": 9}'
    assert body.prepare(TEXT, text, current) is text
    return current


@pytest.mark.parametrize("bad", [b"1e400", b"5.0", b"5e0", b"Infinity", b"-1", b"18446744073709551616"])
def test_odd_numbers_are_refused(bad: bytes) -> None:
    with pytest.raises(Refused) as caught:
        spelled(bad)
    assert caught.value.parameter == "enforced_token_ids[0]"


@pytest.mark.parametrize("broken", [b"0x5", b"05", b"9" * 5000, "٣".encode()])
def test_broken_numbers_are_left_to_the_servers_own_parser(broken: bytes) -> None:
    assert spelled(broken).body_plan is None


def test_minus_zero_is_the_integer_zero() -> None:
    plan = spelled(b"-0").body_plan
    assert plan is not None
    assert plan.ids == (0,)


def test_a_body_over_the_ceiling_that_uses_no_field_passes(status: runtime.Status) -> None:
    status.limits = FieldLimits(body_bytes=100)
    assert prepare(prompt=["enforced_str", "x" * 200])[2]
    with pytest.raises(Refused, match="ceiling with"):
        prepare(prompt="x" * 200, enforced_token_ids=[5])


def test_the_inferred_mode_is_logged_with_its_evidence(caplog: pytest.LogCaptureFixture) -> None:
    plan = fields.FieldPlan((5,), fields.ModeChoice("processed_logprobs", "inferred", {"floor_values": 3}))
    with caplog.at_level("INFO", "vllm.logproof"):
        report.Report().fill(plan, "raw_logprobs", "tag", grammar=False)
    assert caplog.messages == ["logprobs_mode processed_logprobs inferred from {'floor_values': 3}"]
    caplog.clear()
    report.Report().fill(
        fields.FieldPlan((5,), fields.ModeChoice(None, "deployment")), "raw_logprobs", "t", grammar=False
    )
    assert not caplog.messages
