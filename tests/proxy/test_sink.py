from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from logproof.errors import BadReply
from logproof.ir.facts import Facts
from logproof.proxy.captured_exchange import CapturedExchange, sha256
from logproof.proxy.rotating_lines import RotatingLines
from logproof.proxy.sink import FileSink, wire_line
from logproof.verify.artifact import artifact_files, signing
from logproof.verify.artifact.artifact import Claim, ModelClaim
from logproof.verify.record.defaults import neutral
from proxy.pairs import pair

VLLM = Facts(engine="vllm", logprobs_mode="raw")


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
        "added": tuple(found.asks),
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
