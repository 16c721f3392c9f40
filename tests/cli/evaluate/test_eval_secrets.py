"""No key in anything that an evaluation writes or prints, whatever a server does with it; resume takes it anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eval.toy import ToyEngine, serving
from fakes.server import Reply, Seen
from logproof.cli.main import run

KEY = "sk-test-ABC123"
EXTRA = "tenant-7f3a9c1e55"


def test_a_key_that_a_server_repeats_reaches_nothing_that_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MY_KEY", KEY)
    engine = ToyEngine()
    keys: set[str] = set()

    def complete(seen: Seen) -> Any:
        keys.add(seen.headers.get("authorization", ""))
        body = seen.json()
        engine.seen.append(body)
        if "12 trays" in body["prompt"]:
            return Reply(422, json={"detail": f"bad headers: {seen.headers}", "api_key": KEY})
        return {**engine.answer(body), "system_fingerprint": f"fp {seen.headers['x-tenant']}"}

    args = ["eval", "gsm8k_gen", "--limit", "4", "--shots", "0", "--key-env", "MY_KEY", "--header", f"x-tenant={EXTRA}"]
    with serving(engine) as fake:
        fake.on("/v1/completions", complete)
        args += ["-m", fake.url, "--out", "run", "--log", "log.jsonl"]
        assert run(args) == 1
        assert run([*args, "--resume", "--accept", "fp [redacted]"]) == 1
        assert run(["report", "run", "--html", "page.html"]) == 1
        assert run(["export", "run", "calls.jsonl", "--table", "calls"]) == 0
        assert run(["show", "run"]) == 0
        assert run([*args[:-4], "--out", "other", "-m", f"{fake.url}/?key={KEY}"]) == 3
    assert keys == {f"Bearer {KEY}"}
    shown = capsys.readouterr()
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {"run.sqlite", "report.json", "log.jsonl", "page.html", "calls.jsonl"} <= {path.name for path in files}
    for secret in (KEY, EXTRA):
        assert secret not in shown.out + shown.err
        assert not [path for path, content in files.items() if secret.encode() in content]


def test_a_key_in_a_url_is_refused_and_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    for url in (f"http://me:{KEY}@127.0.0.1:1", f"http://127.0.0.1:1/v1?api_key={KEY}"):
        assert run(["eval", "gsm8k_gen", "-m", url]) == 3
        assert KEY not in capsys.readouterr().err
