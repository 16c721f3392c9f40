"""`logproof generate`: texts, scores of sampled tokens, and what was left out."""

from __future__ import annotations

import json
import re
from pathlib import Path

from cli.calling import Cli
from client import served
from dialects import wires
from fakes.server import FakeServer

PROMPT = "The capital of France is"


def test_generate_prints_text_scores_and_what_was_left_out(cli: Cli, fake: FakeServer) -> None:
    args = ("generate", PROMPT, "-m", fake.url, "--max-tokens", 3, "--logprobs", 3, "--stream", "--temperature", 0)
    assert cli(*args, "--option", "min_p=0.1", "--seed", 7) == 0
    assert " Paris" in cli.out
    assert "sampled, vllm_native" in cli.out or "raw logprobs" in cli.out
    assert "schedule.stream: no-op" in cli.err
    assert "choice 0: length (length)" in cli.err
    body = served.sent(fake)[-1]
    assert (body["min_p"], body["seed"], body["logprobs"]) == (0.1, 7, 3)


def test_generate_shows_the_rivals_of_each_sampled_token(cli: Cli, fake: FakeServer) -> None:
    assert cli("generate", PROMPT, "-m", fake.url, "--max-tokens", 3, "--top", 3, "--temperature", 0) == 0
    body = served.sent(fake)[-1]
    assert body["logprobs"] == 3
    rows = [line.rpartition("│")[2] for line in cli.out.splitlines() if "│" in line]
    assert [len(re.findall(r"'<\d+>' -\d", rivals)) for rivals in rows] == [3, 3, 3]


def test_generate_with_a_schema(cli: Cli, fake: FakeServer, tmp_path: Path) -> None:
    schema = wires.load("vllm_native", "comp_so_json").request["structured_outputs"]["json"]
    (tmp_path / "s.json").write_text(json.dumps(schema))
    (choice,) = cli.json("generate", PROMPT, "-m", fake.url, "--json-schema", tmp_path / "s.json")["choices"]
    assert set(choice["parsed"]) == {"name", "age"}
    assert choice["finish"]["reason"] == "stop"


def test_generate_streams_where_the_wire_does(cli: Cli, fake: FakeServer) -> None:
    args = ("generate", PROMPT, "-m", fake.url, "-d", "openai_completions", "--stream", "--logprobs", 3, "--drop", "x")
    assert cli(*args) == 0
    assert served.sent(fake)[-1]["stream"] is True


def test_a_refused_request_names_every_leaf(cli: Cli, fake: FakeServer) -> None:
    args = (
        "generate",
        "x",
        "-m",
        fake.url,
        "-d",
        "vllm_native",
        "--chat",
        "--system",
        "s",
        "--option",
        "guided_json={}",
    )
    text = cli.fails(3, *args)
    for leaf in ("input.messages:", "input.messages.system:", "options.guided_json:"):
        assert leaf in text


def test_text_values_of_options_need_no_quotes(cli: Cli, fake: FakeServer) -> None:
    assert (
        cli("generate", PROMPT, "-m", fake.url, "--option", "cache_salt=abc", "--logprobs", 3, "--max-tokens", 3) == 0
    )
    assert served.sent(fake)[-1]["cache_salt"] == "abc"
    assert "options.cache_salt: sent, unconfirmed" in cli.err


def test_a_note_is_shown_and_a_plain_text_alone(cli: Cli, fake: FakeServer) -> None:
    plain = {
        "model": "other",
        "choices": [{"index": 0, "text": "[bold]x", "finish_reason": "stop", "stop_reason": "."}],
    }
    fake.on(served.ROUTE, plain)
    assert cli("generate", PROMPT, "-m", fake.url) == 0
    assert cli.out == "[bold]x\n"
    assert "note: the reply names model 'other'" in cli.err
    assert "choice 0: stop (stop, matched '.')" in cli.err
