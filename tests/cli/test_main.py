"""The program: bad usage, exit codes, and failures that are nobody's fault, each one line."""

from __future__ import annotations

import pytest

from cli.calling import Cli
from fakes.server import FakeServer
from logproof import __main__ as program
from logproof.cli import main

PROMPT = "The capital of France is"


@pytest.mark.parametrize(
    ("args", "message"),
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
def test_bad_usage_is_one_line_and_exit_code_3(cli: Cli, args: tuple[object, ...], message: str) -> None:
    url = () if "-m" in args or args[0] not in ("score", "generate") else ("-m", "http://127.0.0.1:9")
    assert message in cli.fails(3, *args, *url)


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

    for fault, code, message in (
        (ZeroDivisionError("oops"), 70, "internal error, ZeroDivisionError: oops"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (OSError(28, "No space left on device", "/x"), 5, "/x: No space left on device"),
        (OSError("odd"), 5, "disk: odd"),
    ):
        broken(fault)
        assert message in cli.fails(code, "x")
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


def test_exit_codes_pass_through(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "app", lambda args, standalone_mode: 2)
    assert cli("x") == 2
    monkeypatch.setattr(main.sys, "argv", ["logproof", "x"])
    with pytest.raises(SystemExit) as caught:
        program.main()
    assert caught.value.code == 2


def test_an_argument_that_is_no_text_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["score", "a\udcff b", "--model", "http://127.0.0.1:9"]) == 3
    assert "not valid UTF-8" in capsys.readouterr().err
