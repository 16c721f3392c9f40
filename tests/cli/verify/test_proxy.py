from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from fakes.server import FakeServer, Reply, Seen
from logproof.cli.main import run
from logproof.cli.verify.proxy import _print_counts, _print_start
from logproof.proxy.app import STATUS
from logproof.proxy.record_calls import RecordingStart
from logproof.proxy.recorder import RecorderCounts
from logproof.proxy.request_plan import ROUTES
from logproof.proxy.rotating_lines import RotatingLines
from logproof.verify.artifact import artifact_files
from logproof.verify.artifact.known_request import request_digest
from logproof.verify.artifact.request_files import read_requests
from logproof.verify.checks import structure
from logproof.verify.record.defaults import Defaults, merged, neutral, of_engine, stated
from proxy.pairs import pair
from proxy.running import KEY, call, wait_for

FIELDS = ("model", "messages", "prompt", "logprobs", "top_logprobs", "return_token_ids", "return_tokens_as_token_ids")
SCHEMA = {"requestBody": {"content": {"application/json": {"schema": {"properties": {f: {} for f in FIELDS}}}}}}


def engine(fake: FakeServer) -> None:
    """What a vLLM answers to the probe, and the recorded chat replies."""
    found = pair("chat")
    fake.on("/version", {"version": "0.32.0"})
    fake.on("/v1/models", {"object": "list", "data": [{"id": "smollm2", "owned_by": "vllm", "max_model_len": 2048}]})
    routes = ("/v1/chat/completions", "/v1/completions")
    fake.on("/openapi.json", {"info": {"title": "FastAPI"}, "paths": {r: {"post": SCHEMA} for r in routes}})

    def answer(seen: Seen) -> Reply:
        text = found.asked if seen.json().get("return_token_ids") else found.direct
        return Reply(body=text, headers={"content-type": "application/json"})

    fake.on(found.path, answer)


@contextmanager
def started(fake: FakeServer, out: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The command in a process of its own, and its port."""
    script = "from logproof.__main__ import main; main()"
    args = [
        sys.executable,
        "-c",
        script,
        "proxy",
        "--upstream",
        fake.url,
        "--out",
        str(out),
        "--listen",
        "127.0.0.1:0",
        "--top-k",
        "3",
    ]
    process = subprocess.Popen(args, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        while "proxy at" not in line:
            assert line, "the proxy did not start"
            line = process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+) for", line)
        assert found is not None
        yield process, int(found[1])
    finally:
        process.kill()
        process.stderr.close()
        process.wait()


def post(port: int) -> bytes:
    found = pair("chat")
    return call(port, "POST", found.path, found.body, {"authorization": f"Bearer {KEY}"}).body


def everything(folder: Path) -> bytes:
    return b"".join(p.read_bytes() for p in folder.rglob("*") if p.is_file())


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as made:
        port: int = made.getsockname()[1]
        return port


def posts_then_signal(port: int, got: list[bytes], number: signal.Signals) -> None:
    """Once the proxy listens, three calls and then the signal that ends it."""

    def up() -> bool:
        with suppress(ConnectionError):
            return call(port, "GET", STATUS, None).status == 200
        return False

    try:
        wait_for(up)
        got += [post(port) for _ in range(3)]
    finally:
        os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_all_calls_written(
    tmp_path: Path, number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    out, port, got = tmp_path / "out", free_port(), list[bytes]()
    (tmp_path / "out").mkdir()
    (out / "wire-0.jsonl.open").write_bytes(b'{"request": "torn')
    with FakeServer() as fake:
        engine(fake)
        client = threading.Thread(target=posts_then_signal, args=(port, got, number))
        client.start()
        args = ["--upstream", fake.url, "--out", str(out), "--listen", f"127.0.0.1:{port}", "--top-k", "3"]
        assert run(["proxy", *args, "--wire-log", "--requests", "--on-full", "closed"]) == 0
        client.join()
    assert got == [pair("chat").direct.encode()] * 3
    told = capsys.readouterr().err
    assert "fails closed" in told
    assert "3 calls recorded, 0 lost" in told
    assert "wire-0.jsonl was left open" in told
    artifacts = [a for p in sorted(out.glob("artifacts-*.jsonl")) for a in artifact_files.read(p)]
    assert [structure.faults(a) for a in artifacts] == [[], [], []]
    assert artifacts[0].claim.engine.name == "vllm"
    known = read_requests([out])
    assert {request_digest(a.request.path, a.request.body) for a in artifacts} == set(known)
    assert KEY.encode() not in everything(out)
    assert KEY not in told
    wires = [json.loads(w) for p in out.glob("wire-*.jsonl") for w in p.read_bytes().splitlines()]
    assert [w["path"] for w in wires] == [pair("chat").path] * 3
    assert wires[0]["response"] == json.loads(pair("chat").asked)
    assert not list(out.glob("*.open"))


def test_a_killed_proxy_leaves_whole_lines_to_the_next(tmp_path: Path) -> None:
    with FakeServer() as fake:
        engine(fake)
        with started(fake, tmp_path) as (process, port):
            post(port)
            wait_for(lambda: json.loads(call(port, "GET", STATUS, None).body)["recorded"] == 1)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
    assert list(tmp_path.glob("*.jsonl")) == []
    (left,) = tmp_path.glob("*.open")
    left.write_bytes(left.read_bytes() + b'{"schema": "torn')
    RotatingLines(tmp_path, "artifacts")
    (whole,) = tmp_path.glob("artifacts-*.jsonl")
    assert len(list(artifact_files.read(whole))) == 1


def start(**fields: object) -> RecordingStart:
    values = {
        "url": "http://p",
        "upstream": "http://e",
        "output": Path("out"),
        "on_full": "fails open",
        "recovered": (),
        "unasked": (),
        "defaults": neutral(),
        **fields,
    }
    return RecordingStart(**values)


def test_lost_calls_and_engines_without_ids_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert _print_counts(RecorderCounts(lost=2, last_error="the disk is full")) == 2
    _print_start(start(unasked=ROUTES))
    told = capsys.readouterr().err
    assert "2 lost" in told
    assert "last error: the disk is full" in told
    assert "/v1/completions: the engine lists no token ids" in told


def test_what_requests_leave_out_is_told_at_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    _print_start(start(defaults=merged(of_engine({"temperature": 0.6}), Defaults(), stated({"top_k": 20}))))
    told = capsys.readouterr().err
    assert "temperature 0.6 (engine), top_k 20 (operator)" in told
    assert "not known of requests that leave it out: top_p, min_p" in told
    _print_start(start())
    assert "not known" not in capsys.readouterr().err


def test_user_faults_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FakeServer() as fake:
        engine(fake)
        common = ["proxy", "--out", str(tmp_path), "--upstream", fake.url]
        assert run([*common, "--on-full", "ajar"]) == 3
        assert run([*common, "--listen", "nowhere"]) == 3
        assert run([*common, "--listen", "127.0.0.1:99999"]) == 3
        port = fake.url.rpartition(":")[2]
        assert run([*common, "--listen", f"127.0.0.1:{port}"]) == 3
        assert run(["proxy", "--out", str(tmp_path), "--upstream", "no url"]) == 3
    err = capsys.readouterr().err
    assert "open or closed" in err
    assert "HOST:PORT" in err
    assert "cannot listen" in err
    assert "Traceback" not in err


def test_module_runs_as_declared(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["proxy", "--help"]) == 0
    assert "--on-full" in capsys.readouterr().out


def test_a_statement_that_the_engine_denies_stops_the_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FakeServer() as fake:
        engine(fake)
        routes = ("/v1/chat/completions", "/v1/completions", "/v1/responses")
        fake.on("/openapi.json", {"info": {"title": "FastAPI"}, "paths": {r: {"post": SCHEMA} for r in routes}})
        fake.on("/v1/responses", {"temperature": 0.6, "top_p": 0.95})
        common = ["proxy", "--out", str(tmp_path / "o"), "--upstream", fake.url, "--listen", "127.0.0.1:0"]
        assert run([*common, "--generation-config", "vllm"]) == 3
        assert "temperature is stated as 1.0, but the engine says that it takes 0.6" in capsys.readouterr().err
        (tmp_path / "generation_config.json").write_text('{"temperature": 0.6}')
        assert run([*common, "--generation-config", str(tmp_path)]) == 3
        assert "top_p is stated as 1.0" in capsys.readouterr().err
        assert run([*common, "--default", "top_p"]) == 3
        assert run([*common, "--generation-config", str(tmp_path / "none.json")]) == 3
        assert not (tmp_path / "o").exists()
