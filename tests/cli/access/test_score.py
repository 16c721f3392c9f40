"""`logproof score`: every token of the prompt, requirements, recordings, and faults of the endpoint in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.calling import KEY, Cli
from client import served
from fakes.server import FakeServer, Reply
from logproof.client.probe import QUESTIONS

PROMPT = "The capital of France is"


def test_score_prints_every_token(cli: Cli, fake: FakeServer) -> None:
    assert cli("score", PROMPT, "-m", fake.url, "-k", 3) == 0
    assert "prompt, vllm_native, raw logprobs" in cli.out
    assert "' capital'" in cli.out
    assert "dialect vllm_native, chosen for vllm 0.32.0" in cli.err
    assert fake.seen[-1].headers["authorization"] == f"Bearer {KEY}"


def test_score_as_json_is_the_response(cli: Cli, fake: FakeServer) -> None:
    prompt = cli.json("score", PROMPT, "-m", fake.url)["prompt"]
    assert prompt["logprobs"][0] is None
    assert len(prompt["logprobs"]) == 5
    assert prompt["ids"] == [504, 3575, 282, 4649, 314]


def test_score_by_echo_ids_and_file(cli: Cli, fake: FakeServer, tmp_path: Path) -> None:
    assert cli("score", PROMPT, "-m", fake.url, "-d", "openai_completions", "--model-name", "smollm2") == 0
    assert "unknown" not in cli.out
    assert served.sent(fake)[-1]["echo"] is True
    assert cli("score", "--ids", "504, 3575,282,4649,314", "-m", fake.url) == 0
    assert served.sent(fake)[-1]["prompt"] == [504, 3575, 282, 4649, 314]
    (tmp_path / "p.txt").write_text(PROMPT)
    assert cli("score", "--file", tmp_path / "p.txt", "-m", fake.url) == 0


def test_record_writes_every_exchange_without_the_key(cli: Cli, fake: FakeServer, tmp_path: Path) -> None:
    assert cli("score", PROMPT, "-m", fake.url, "--record", tmp_path / "a") == 0
    assert len(list((tmp_path / "a").iterdir())) == 1
    assert cli("probe", fake.url, "--record", tmp_path / "b") == 0
    assert len(list((tmp_path / "b").iterdir())) > 5
    assert all(KEY not in f.read_text() for f in tmp_path.rglob("*.json"))


def test_requirements_are_checked_before_anything_is_sent(cli: Cli, fake: FakeServer) -> None:
    assert cli("score", PROMPT, "-m", fake.url, "--require", "top_logprobs=100", "--require", "input_scoring") == 0
    before = len(served.sent(fake))
    text = cli.fails(3, "score", PROMPT, "-m", fake.url, "--require", "top_logprobs=101")
    assert "vllm_native cannot give top_logprobs=101" in text
    assert "unknown capability" in cli.fails(3, "score", PROMPT, "-m", fake.url, "--require", "speed")
    assert len(served.sent(fake)) == before


def test_a_key_from_a_named_variable_and_headers_are_sent_and_never_shown(
    cli: Cli, fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    assert cli("score", PROMPT, "-m", fake.url, "--key-env", "MY_KEY", "--header", f"x-extra={KEY}") == 0
    assert fake.seen[-1].headers["x-extra"] == KEY
    fake.on(served.ROUTE, lambda seen: Reply(422, json={"detail": f"headers: {seen.headers}"}))
    assert "HTTP 422" in cli.fails(4, "score", PROMPT, "-m", fake.url, "--header", f"x-extra={KEY}")
    assert "NOT_SET" in cli.fails(3, "score", PROMPT, "-m", fake.url, "--key-env", "NOT_SET")


@pytest.mark.parametrize(
    ("reply", "code", "message"),
    [
        (Reply(401, json={"error": {"message": "bad key"}}), 4, "HTTP 401"),
        (Reply(404, json={"error": {"message": "The model `smollm2` does not exist."}}), 4, "does not exist"),
        (Reply(404, json={"detail": "Not Found"}), 4, "HTTP 404"),
        (Reply(400, json={"error": {"message": "maximum context length is 2048 " + "x" * 9999}}), 4, "maximum context"),
        (Reply(body="<html><title>Log in</title>", headers={"content-type": "text/html"}), 4, "HTML page"),
        (Reply(body='{"choices": [{"tex'), 4, "no JSON"),
        (Reply(body='{"choices": [{"index": 0, "text": "x", "a": NaN}]}'), 4, "no JSON"),
        (Reply(json={"choices": [{"index": 0, "text": "x"}]}), 4, "prompt logprobs were asked and are absent"),
        (Reply(json={"data": []}), 4, "missing required field `choices`"),
    ],
)
def test_bad_replies_are_one_line(cli: Cli, fake: FakeServer, reply: Reply, code: int, message: str) -> None:
    fake.on(served.ROUTE, reply)
    text = cli.fails(code, "score", PROMPT, "-m", fake.url, "-d", "vllm_native", "--model-name", "smollm2")
    assert message in text
    assert len(text) < 1500


@pytest.mark.parametrize("status", [429, 500])
def test_a_failure_that_stays_is_told_after_its_retries(
    cli: Cli, fake: FakeServer, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse = Reply(status, json={"error": {"message": "not now"}}, headers={"x-should-retry": "false"})
    fake.on(served.ROUTE, refuse)
    assert f"HTTP {status}: not now" in cli.fails(4, "score", PROMPT, "-m", fake.url)


def test_nothing_at_the_url(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeServer() as gone:
        url = gone.url
    monkeypatch.setattr("logproof.http.retry.backoff", lambda attempt, policy, roll: 0.0)
    assert cli("score", PROMPT, "-m", url, "--timeout", 2) == 4
    *tries, error, hint = cli.err.splitlines()
    assert tries == [f"asking {url} again, try {n} of 3: nothing listens at {url} (connection refused)" for n in (2, 3)]
    assert error == f"error: nothing listens at {url} (connection refused) (sent 3 times)"
    assert hint.startswith("  hint: ")


@pytest.mark.parametrize("command", [("probe",), ("score", PROMPT, "-m")])
def test_a_server_that_only_fails_is_named_with_the_code_of_endpoints(
    cli: Cli, fake: FakeServer, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr("logproof.http.retry.backoff", lambda attempt, policy, roll: 0.0)
    for question in QUESTIONS:
        fake.on(question, Reply(500, json={"error": {"message": "out of order"}}))
    assert cli(*command, fake.url) == 4
    assert "try 3 of 3: HTTP 500: out of order" in cli.err
    assert "error: HTTP 500: out of order (sent 3 times)" in cli.err


def test_a_wrong_model_name_lists_what_is_served(cli: Cli, fake: FakeServer) -> None:
    assert "it serves: smollm2" in cli.fails(3, "score", PROMPT, "-m", fake.url, "--model-name", "nope")
