"""Every command that reads a file or a run: one exit code and one line with the name, whatever is wrong with it."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from pathlib import Path

import pytest

from logproof.cli.engines import engine
from logproof.cli.main import app, run
from logproof.verify.policy import dump
from verify.builders import policy

URL = "http://127.0.0.1:9"
AUDIT = f"audit {URL} --trusted {URL}"
PARITY = f"parity vllm_native openai_completions arc_easy_ppl -m {URL} --out out"

INPUTS = {
    "score file": f"score --file @ -m {URL}",
    "score tokenizer": f"score hi --tokenizer @ -m {URL}",
    "generate file": f"generate --file @ -m {URL}",
    "generate json_schema": f"generate hi --json-schema @ -m {URL}",
    "generate tokenizer": f"generate hi --tokenizer @ -m {URL}",
    "eval data": f"eval arc_easy_ppl --data @ -m {URL} --out out",
    "eval config": "eval --config @",
    "eval tokenizer": f"eval arc_easy_ppl --tokenizer @ -m {URL} --out out",
    "parity data": f"{PARITY} --data @",
    "parity tokenizer": f"{PARITY} --tokenizer @",
    "rescore run": "rescore @",
    "report run": "report @",
    "show run": "show @",
    "export run": "export @ written.jsonl",
    "capture file": f"capture @ --model {URL} --out written.jsonl",
    "capture sign_key": f"capture prompts.jsonl --sign-key @ --model {URL} --out written.jsonl",
    "proxy generation_config": f"proxy --upstream {URL} --generation-config @ --out out",
    "proxy sign_key": f"proxy --upstream {URL} --sign-key @ --out out",
    "replay artifact": f"replay @ --engine {URL}",
    "verify artifact": f"verify @ --engine {URL}",
    "verify policy": f"verify prompts.jsonl --policy @ --engine {URL}",
    "verify requests": f"verify prompts.jsonl --requests @ --engine {URL}",
    "calibrate file": f"calibrate @ --engine {URL} --out written.json",
    "calibrate honest": f"calibrate prompts.jsonl --honest @ --engine {URL} --out written.json",
    "audit policy": f"{AUDIT} --policy @ --prompts prompts.jsonl",
    "audit file": f"{AUDIT} --policy policy.json --prompts @",
    "audit previous": f"{AUDIT} --policy policy.json --prompts prompts.jsonl --previous @",
    "audits record": "audits @",
}
"""Command and parameter -> a line that gives it the path `@`."""

FREE = {
    "score file": ("empty", "json"),
    "generate file": ("empty", "json"),
    "generate json_schema": ("json",),
    "proxy generation_config": ("json",),
    "verify artifact": ("binary", "json"),
}
"""What is no fault: a prompt may be any text; a schema, and an engine's config, may hold fields of any name; a line
that is no artifact gets a verdict of its own."""

OTHERS = {
    "score record", "generate record", "probe record", "eval directory", "eval log", "parity directory",
    "report page", "runs directory", "export to", "capture output", "capture requests", "proxy output", "verify output",
    "calibrate output", "audit output", "audit keep", "audit record", "demo directory",
}  # fmt: skip
"""Parameters that are paths of what is written, and directories where a missing run is no fault."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    Path("prompts.jsonl").write_text('{"text": "hi"}\n')
    Path("policy.json").write_bytes(dump(policy()))
    Path("some").mkdir()
    Path("some/directory").mkdir()
    Path("some/empty").touch()
    Path("some/binary").write_bytes(bytes(range(255, -1, -1)))
    Path("some/json").write_text('{"unheard": [1, 2]}\n')
    yield
    assert not list(Path().glob("written*")), "nothing is written"


def test_every_parameter_that_is_a_path_is_tested_here_or_is_no_input() -> None:
    commands = [*app.registered_commands, *engine.app.registered_commands]
    found = set()
    for command in commands:
        assert command.callback is not None
        name = command.name or command.callback.__name__
        hints = typing.get_type_hints(command.callback)
        found |= {f"{name} {parameter}" for parameter, hint in hints.items() if "pathlib" in str(hint)}
    as_text = {"eval data", "parity data", "proxy generation_config"}
    assert found == (INPUTS.keys() | OTHERS) - as_text


@pytest.mark.parametrize("kind", ["absent", "directory", "empty", "binary", "json"])
@pytest.mark.parametrize("name", INPUTS)
def test_a_bad_input_file_is_named_with_one_exit_code(name: str, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = INPUTS[name].split()
    if name in FREE and kind in FREE[name]:
        return
    assert run([f"some/{kind}" if word == "@" else word for word in line]) == 3
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("error: ")
    assert f"some/{kind}" in told[0]
    assert len(told) <= 2, told
