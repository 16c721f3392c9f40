from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eval.toy import ToyEngine, connection, fault
from logproof.client.pool import Pool
from logproof.errors import StoreError
from logproof.eval.run.events import EventLog
from logproof.eval.run.run import Order, execute
from logproof.eval.run.runner import RunPolicy
from logproof.eval.tasks.task import Settings
from logproof.http.endpoint import endpoint

KEY = "sk-test-ABC12345"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_writes_one_line_an_event_and_no_secret(tmp_path: Path) -> None:
    engine = ToyEngine()
    engine.behave = lambda body: fault(f"your key was {KEY}") if len(engine.seen) == 3 else None
    conn = msgspec.structs.replace(connection(engine), endpoint=endpoint("http://127.0.0.1:1", key=KEY))
    order = Order(
        entries=[("gsm8k_gen", Settings(limit="3", shots=0))], out=tmp_path / "run", policy=RunPolicy(1),
        log=tmp_path / "log.jsonl", metrics=0,
    )  # fmt: skip
    asyncio.run(execute(order, Pool([conn])))
    found = lines(tmp_path / "log.jsonl")
    assert [e["event"] for e in found] == ["run_started", *["call", "sample"] * 3, "run_ended"]
    assert list(found[0])[:2] == ["time", "event"]
    assert found[0]["planned"] == {"gsm8k_gen": 3}
    assert found[1]["endpoint"] == "http://127.0.0.1:1"
    assert found[1]["prompt_tokens"] > 0
    assert (found[5]["status"], found[6]["status"]) == ("failed", "failed")
    assert found[5]["error"].startswith("ServerFault: HTTP 500")
    assert (found[-1]["ran"], found[-1]["failed"], found[-1]["status"]) == (3, 1, "failures")
    assert "3 requests (1 failed, 0 retries)" in found[-1]["counters"]
    for file in [tmp_path / "log.jsonl", *(tmp_path / "run").iterdir()]:
        assert KEY.encode() not in file.read_bytes()


def test_a_log_is_appended_to_masked_and_clipped(tmp_path: Path) -> None:
    for _ in range(2):
        with EventLog(tmp_path / "log", [KEY]) as log:
            log.emit("call", error=f"{KEY}\nsecond {'x' * 900}", count=3, nothing=None)
    found = lines(tmp_path / "log")
    assert len(found) == 2
    assert KEY not in str(found)
    assert "\n" not in found[0]["error"]
    assert len(found[0]["error"]) <= 400
    assert (found[0]["count"], found[0]["nothing"]) == (3, None)


def test_a_log_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot write the log"):
        EventLog(tmp_path / "none" / "log")
    full = Path("/dev/full")
    if full.exists():
        with pytest.raises(StoreError, match="No space"):
            EventLog(full).emit("x", text="y" * 9000, more=["z" * 9000])


def test_a_log_on_a_full_disk_ends_the_run_with_one_line() -> None:
    full = Path("/dev/full")
    if full.exists():
        with pytest.raises(StoreError, match="cannot write the log /dev/full: No space"), EventLog(full) as log:
            log.emit("x")
        with pytest.raises(StoreError, match="No space"), EventLog(full) as log:
            log._file.write("half a line, which goes out when the log is closed")
