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
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fakes.server import FakeServer, Reply, Seen
from logproof.cli.main import run
from logproof.cli.verify.proxy import FileSink, _announce, _farewell, _tell_gaps, wire_line
from logproof.errors import BadReply
from logproof.ir.facts import Facts
from logproof.proxy.app import STATUS, Proxy
from logproof.proxy.captured_exchange import CapturedExchange, sha256
from logproof.proxy.recorder import Recorder
from logproof.proxy.request_plan import ROUTES, Asks
from logproof.proxy.rotating_lines import RotatingLines
from logproof.proxy.upstream import Upstream
from logproof.verify.artifact import artifact_files, signing
from logproof.verify.artifact.artifact import Claim, ModelClaim
from logproof.verify.checks import structure
from logproof.verify.record.defaults import Defaults, merged, neutral, of_engine, stated
from proxy.pairs import pair
from proxy.running import KEY, call, wait_for

FIELDS = ("model", "messages", "prompt", "logprobs", "top_logprobs", "return_token_ids", "return_tokens_as_token_ids")
SCHEMA = {"requestBody": {"content": {"application/json": {"schema": {"properties": {f: {} for f in FIELDS}}}}}}
VLLM = Facts(engine="vllm", logprobs_mode="raw")


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
        assert run(["proxy", *args, "--wire-log", "--on-full", "closed"]) == 0
        client.join()
    assert got == [pair("chat").direct.encode()] * 3
    told = capsys.readouterr().err
    assert "fails closed" in told
    assert "3 calls recorded, 0 lost" in told
    assert "wire-0.jsonl was left open" in told
    artifacts = [a for p in sorted(out.glob("artifacts-*.jsonl")) for a in artifact_files.read(p)]
    assert [structure.faults(a) for a in artifacts] == [[], [], []]
    assert artifacts[0].claim.engine.name == "vllm"
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


def test_lost_calls_and_engines_without_ids_are_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    recorder = Recorder(sink(tmp_path), "open")
    recorder.counts.lost = 2
    recorder.counts.last_error = "the disk is full"
    assert _farewell(recorder) == 2
    made = Proxy(Upstream("http://e"), recorder, dict.fromkeys(ROUTES, Asks(False, False, 5)))
    _announce(made, "http://p", tmp_path, [])
    told = capsys.readouterr().err
    assert "2 lost" in told
    assert "last error: the disk is full" in told
    assert "/v1/completions: the engine lists no token ids" in told


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


def exchange(name: str, **changes: object) -> CapturedExchange:
    found = pair(name)
    body = json.dumps({**found.request, **found.asks}).encode()
    reply = found.asked.encode()
    values = {
        "path": found.path,
        "started_at": datetime(2026, 11, 30, tzinfo=UTC).isoformat(),
        "sent": found.body,
        "forwarded": body,
        "sent_sha256": sha256(found.body),
        "forwarded_sha256": sha256(body),
        "status": 200,
        "content_type": "application/json",
        "reply": reply,
        "reply_sha256": sha256(reply),
        "served_sha256": "",
        "streamed": found.streamed,
        "complete": True,
        "asked": tuple(found.asks),
        "width": 3,
        "seconds": 0.1,
        "first_byte_seconds": 0.1,
        **changes,
    }
    return CapturedExchange(**values)


def sink(folder: Path, *, wires: bool = True) -> FileSink:
    kept = RotatingLines(folder, "wire", max_age_s=0.0) if wires else None
    claims = Claim(model=ModelClaim(id="m"))
    return FileSink(RotatingLines(folder, "artifacts", max_age_s=0.0), kept, VLLM, lambda _: claims, "http://e")


def test_only_replies_with_status_200_become_artifacts(tmp_path: Path) -> None:
    made = sink(tmp_path)
    made.write(exchange("chat_stream"))
    made.write(exchange("chat", status=400, reply=b'{"error": {}}'))
    made.tick()
    assert [len(p.read_bytes().splitlines()) for p in sorted(tmp_path.glob("*.jsonl"))] == [1, 2]
    made.close()


def test_a_cut_call_is_in_the_wire_log_alone(tmp_path: Path) -> None:
    made = sink(tmp_path)
    with pytest.raises(BadReply):
        made.write(exchange("chat", reply=b'{"choices', complete=False))
    made.close()
    (wire,) = tmp_path.glob("*.jsonl")
    assert json.loads(wire.read_bytes())["response_text"] == '{"choices'


def test_without_a_wire_log_there_is_none(tmp_path: Path) -> None:
    made = sink(tmp_path, wires=False)
    made.write(exchange("completion_batch"))
    made.tick()
    made.close()
    (found,) = tmp_path.glob("*")
    assert len(found.read_bytes().splitlines()) == 2


def test_a_wire_line_tells_what_was_sent_and_what_was_forwarded() -> None:
    line = json.loads(wire_line(exchange("chat_stream", sent=b"\xffnot json")))
    assert line["sent"] == "\ufffdnot json"
    assert line["request"]["return_token_ids"] is True
    assert line["response_text"].startswith("data: ")
    same = exchange("chat", forwarded=pair("chat").body)
    assert json.loads(wire_line(same))["sent"] is None


def test_a_model_that_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    asked: list[str] = []

    def claims(model: str) -> Claim:
        asked.append(model)
        return Claim(model=ModelClaim(id=model))

    made = FileSink(RotatingLines(tmp_path, "a"), None, VLLM, claims, "http://e")
    made.write(exchange("chat"))
    with pytest.raises(Exception, match="no JSON object"):
        made.write(exchange("chat", forwarded=b"[]"))
    assert asked == ["smollm2", "unknown"]


def test_module_runs_as_declared(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["proxy", "--help"]) == 0
    assert "--on-full" in capsys.readouterr().out


def test_what_requests_leave_out_is_told_at_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    _tell_gaps(merged(of_engine({"temperature": 0.6}), Defaults(), stated({"top_k": 20})))
    told = capsys.readouterr().err
    assert "temperature 0.6 (engine), top_k 20 (operator)" in told
    assert "not known of requests that leave it out: top_p, min_p" in told
    _tell_gaps(neutral())
    assert "not known" not in capsys.readouterr().err


def test_defaults_reach_the_artifacts(tmp_path: Path) -> None:
    found = pair("chat")
    body = json.dumps({**{k: v for k, v in found.request.items() if k != "temperature"}, **found.asks}).encode()
    claims = Claim(model=ModelClaim(id="m"))
    made = FileSink(RotatingLines(tmp_path, "a"), None, VLLM, lambda _: claims, "http://e", neutral(), bytes(32))
    made.write(exchange("chat", forwarded=body))
    made.close()
    (path,) = tmp_path.glob("*.jsonl")
    (artifact,) = artifact_files.read(path)
    assert (artifact.sampling.temperature, artifact.sampling.sources["temperature"]) == (1.0, "operator")
    assert len(signing.check_signature(artifact)) == 64


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
