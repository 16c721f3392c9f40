"""`score`, `generate` and `dialects` from the command line: results, refusals in one line, no key shown."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from cli.calling import KEY, Cli
from client import served
from dialects import wires
from fakes.server import FakeServer, Reply
from logproof import __main__ as program
from logproof.cli import main
from logproof.cli.access import score
from logproof.cli.printing import print_json, visible
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


def test_record_writes_every_exchange_without_the_key(cli: Cli, fake: FakeServer, tmp_path: Path) -> None:
    assert cli("score", PROMPT, "-m", fake.url, "--record", tmp_path / "a") == 0
    assert len(list((tmp_path / "a").iterdir())) == 1
    assert cli("probe", fake.url, "--record", tmp_path / "b") == 0
    assert len(list((tmp_path / "b").iterdir())) > 5
    assert all(KEY not in f.read_text() for f in tmp_path.rglob("*.json"))


def test_requirements_are_checked_before_anything_is_sent(cli: Cli, fake: FakeServer) -> None:
    assert cli("score", PROMPT, "-m", fake.url, "--require", "top_logprobs=100", "--require", "input_scoring") == 0
    before = len(served.sent(fake))
    told = cli.fails(3, "score", PROMPT, "-m", fake.url, "--require", "top_logprobs=101")
    assert "vllm_native cannot give top_logprobs=101" in told
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
    ("reply", "code", "told"),
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
def test_bad_replies_are_one_line(cli: Cli, fake: FakeServer, reply: Reply, code: int, told: str) -> None:
    fake.on(served.ROUTE, reply)
    text = cli.fails(code, "score", PROMPT, "-m", fake.url, "-d", "vllm_native", "--model-name", "smollm2")
    assert told in text
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


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("score",), "give a prompt, or --file"),
        (("score", "x", "--file", "y"), "not both"),
        (("score", "--file", "/no/such/file"), "cannot read"),
        (("score", "x", "-m", "127.0.0.1:8000"), "has no scheme"),
        (("score", "x", "-m", "http://h/v1/chat/completions"), "ends in a route (/v1/chat/completions)"),
        (("score", "x", "-m", "http://u:p@h"), "holds credentials"),
        (("score", "x", "-d", "vllm_nativ"), "did you mean vllm_native?"),
        (("score", "x", "--timeout", 0), "seconds above 0"),
        (("score", "x", "--timeout", "nan"), "seconds above 0"),
        (("eval", "gsm8k_gen", "-c", 1000000000), "it goes from 1 to 4096"),
        (("score", "x", "--header", "oops"), "NAME=VALUE"),
        (("score", "--ids", "1,x", "-m", "http://h"), "separated by commas"),
        (("score", "--ids", "1,²", "-m", "http://h"), "separated by commas"),
        (("score", "--ids", "9" * 5000, "-m", "http://h"), "separated by commas"),
        (("generate", "x", "--system", "s"), "--system goes with --chat"),
        (("generate", "x", "--json-schema", "/no/such"), "cannot read"),
        (("generate", "x", "--option", "oops"), "NAME=VALUE"),
        (("generate", "x", "--temperature", "warm"), "'--temperature': Input should be a valid number"),
        (("dialects", "vllm"), "unknown dialect 'vllm'"),
        (("frobnicate",), "No such command 'frobnicate'"),
        (("score", "--frob"), "No such option"),
        (("probe",), "Missing argument"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_3(cli: Cli, args: tuple[object, ...], told: str) -> None:
    url = () if "-m" in args or args[0] not in ("score", "generate") else ("-m", "http://127.0.0.1:9")
    assert told in cli.fails(3, *args, *url)


def test_a_wrong_model_name_lists_what_is_served(cli: Cli, fake: FakeServer) -> None:
    assert "it serves: smollm2" in cli.fails(3, "score", PROMPT, "-m", fake.url, "--model-name", "nope")


def test_files_that_are_no_text_or_too_large(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").write_bytes(b"\xff\xfe")
    assert "not UTF-8" in cli.fails(3, "score", "--file", tmp_path / "bin", "-m", "http://h")
    (tmp_path / "bad.json").write_text("[1]")
    assert "no JSON object" in cli.fails(3, "generate", "x", "--json-schema", tmp_path / "bad.json", "-m", "http://h")
    monkeypatch.setattr(score, "MAX_PROMPT_BYTES", 1)
    (tmp_path / "big").write_text("abc")
    assert "is longer than" in cli.fails(3, "score", "--file", tmp_path / "big", "-m", "http://h")


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
    told = cli.fails(3, *args)
    for leaf in ("input.messages:", "input.messages.system:", "options.guided_json:"):
        assert leaf in told


def test_text_values_of_options_need_no_quotes(cli: Cli, fake: FakeServer) -> None:
    assert (
        cli("generate", PROMPT, "-m", fake.url, "--option", "cache_salt=abc", "--logprobs", 3, "--max-tokens", 3) == 0
    )
    assert served.sent(fake)[-1]["cache_salt"] == "abc"
    assert "options.cache_salt: sent, unconfirmed" in cli.err


def test_dialects_shows_capabilities_leaves_and_reasons(cli: Cli) -> None:
    assert cli("dialects", "vllm_native") == 0
    assert "vLLM answers 400 to any suffix" in cli.out
    found = cli.json("dialects", "vllm_native")
    assert found["capabilities"]["input_scoring"] == {"vllm_native": {"vllm": None}}
    assert found["leaves"]["model"]["vllm_native"]["vllm"][0]["kind"] == "sent"


def test_dialects_of_all(cli: Cli) -> None:
    assert cli("dialects", "--leaves") == 0
    assert "input_scoring" in cli.out
    assert "by value" in cli.out


def test_version_and_help(cli: Cli) -> None:
    assert cli("version") == 0
    assert cli.out.strip()
    assert cli() == 0
    assert "Usage:" in cli.out
    assert cli("score", "--help") == 0


def test_what_is_nobodys_fault_is_still_one_line(cli: Cli, monkeypatch: pytest.MonkeyPatch, fake: FakeServer) -> None:
    def broken(fault: BaseException) -> None:
        def boom(args: list[str], standalone_mode: bool) -> int:
            raise fault

        monkeypatch.setattr(main, "app", boom)

    for fault, code, told in (
        (ZeroDivisionError("oops"), 70, "internal error, ZeroDivisionError: oops"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (OSError(28, "No space left on device", "/x"), 5, "/x: No space left on device"),
        (OSError("odd"), 5, "disk: odd"),
    ):
        broken(fault)
        assert told in cli.fails(code, "x")
    monkeypatch.setenv("LOGPROOF_TRACEBACK", "1")
    broken(ZeroDivisionError("oops"))
    with pytest.raises(ZeroDivisionError):
        cli("x")


def test_a_reader_that_went_away_is_no_error(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []
    monkeypatch.setattr(main, "app", lambda args, standalone_mode: (_ for _ in ()).throw(BrokenPipeError()))
    monkeypatch.setattr(main.sys.stderr, "close", lambda: closed.append(True))
    assert cli("x") == 0
    assert closed == [True]


def test_a_mark_is_shown_as_a_note_and_a_plain_text_alone(cli: Cli, fake: FakeServer) -> None:
    plain = {
        "model": "other",
        "choices": [{"index": 0, "text": "[bold]x", "finish_reason": "stop", "stop_reason": "."}],
    }
    fake.on(served.ROUTE, plain)
    assert cli("generate", PROMPT, "-m", fake.url) == 0
    assert cli.out == "[bold]x\n"
    assert "note: the reply names model 'other'" in cli.err
    assert "choice 0: stop (stop, matched '.')" in cli.err


def test_json_shows_what_json_cannot_hold(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": np.array([[np.nan, -np.inf], [-1.0, 0.0]])})
    assert json.loads(capsys.readouterr().out) == {"a": [[None, "-inf"], [-1.0, 0.0]]}
    with pytest.raises(TypeError, match="cannot print object"):
        print_json({"a": object()})


def test_exit_codes_pass_through(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "app", lambda args, standalone_mode: 2)
    assert cli("x") == 2
    monkeypatch.setattr(main.sys, "argv", ["logproof", "x"])
    with pytest.raises(SystemExit) as caught:
        program.main()
    assert caught.value.code == 2


def test_control_characters_of_a_reply_are_shown_not_obeyed() -> None:
    assert visible("a\x1b[31mb\n\tc") == "a\\x1b[31mb\n\tc"


def test_an_argument_that_is_no_text_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["score", "a\udcff b", "--model", "http://127.0.0.1:9"]) == 3
    assert "not valid UTF-8" in capsys.readouterr().err
