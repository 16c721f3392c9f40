"""`probe` from the command line: what an endpoint is, which way its key takes, and what is no engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.calling import KEY, Cli
from fakes.server import FakeServer, Reply
from logproof.client.probe import QUESTIONS

STYLES = ("authorization", "x-api-key", "x-goog-api-key")

"""Headers in which a key may travel, in the order in which they are tried."""


def test_probe_of_a_server_that_is_no_engine_is_a_fault_of_the_endpoint(cli: Cli) -> None:
    with FakeServer() as server:
        assert "answers none of the questions" in cli.fails(4, "probe", server.url)


def test_probe_tells_what_is_there(cli: Cli, fake: FakeServer) -> None:
    assert cli("probe", fake.url) == 0
    assert "best for scoring" in cli.out
    found = cli.json("probe", fake.url)
    assert found["facts"]["engine"] == "vllm"
    assert found["dialects"][0] == "vllm_native"


@pytest.mark.parametrize("style", STYLES)
def test_probe_finds_how_an_endpoint_takes_the_key_and_records_every_try(cli: Cli, tmp_path: Path, style: str) -> None:
    value = f"Bearer {KEY}" if style == "authorization" else KEY
    models = {"data": [{"type": "model", "id": "claude-x"}], "has_more": False}
    with FakeServer() as guarded:
        guarded.on("/v1/models", lambda seen: models if seen.headers.get(style) == value else Reply(401, json={}))
        found = cli.json("probe", guarded.url, "--record", tmp_path)
        tries = [seen for seen in guarded.seen if seen.path == "/v1/models"]
    assert (found["facts"]["engine"], found["dialects"]) == ("anthropic", ["anthropic_messages"])
    assert [len(seen.headers.keys() & set(STYLES)) for seen in tries] == [1] * (STYLES.index(style) + 1)
    kept = [json.loads(f.read_text()) for f in tmp_path.iterdir()]
    assert sorted(k["status"] for k in kept if k["path"] == "/v1/models") == [200, *[401] * STYLES.index(style)]
    assert KEY not in str(kept)


def test_probe_with_a_key_that_no_way_opens_is_one_line(cli: Cli) -> None:
    with FakeServer() as guarded:
        guarded.on("/v1/models", Reply(401, json={"error": {"message": "bad key"}}))
        assert "HTTP 401" in cli.fails(4, "probe", guarded.url)


def test_probe_of_something_unknown_and_of_a_plugin(cli: Cli, fake: FakeServer) -> None:
    fake.on("/logproof/status", {"version": "0.1.0", "ready": True, "features": {"enforced_replay": True}})
    assert cli("probe", fake.url) == 0
    assert "logproof-vllm 0.1.0: enforced_replay" in cli.out
    fake.on("/logproof/status", {"version": "0.1.0", "ready": False, "reason": "[no] canary"})
    assert cli("probe", fake.url) == 0
    assert "off:" in cli.out
    fake.on("/v1/models", {"data": [{"id": "m", "owned_by": "me"}]})
    fake.on("/openapi.json", Reply(404))
    assert cli("probe", fake.url) == 0
    assert "unknown" in cli.out


def test_a_server_that_hangs_ends_a_probe_after_two_timeouts(cli: Cli, fake: FakeServer) -> None:
    for question in QUESTIONS:
        fake.on(question, Reply(hang=True))
    assert cli("probe", fake.url, "--timeout", 0.2) == 4
    assert cli.err.count("asking ") == 1
    assert "time limit of 0.2 s passed (sent 2 times)" in cli.err
