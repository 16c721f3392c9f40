"""Wire recordings: one file an exchange, free of keys, and readable by the fake server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from fakes.server import FakeServer, Reply, recording
from logproof.errors import ServerFault, StatusError, StoreError
from logproof.http.endpoint import endpoint
from logproof.http.exchange import WireReply, WireRequest
from logproof.http.recording import RecordingSender
from logproof.http.retry import RetryPolicy
from logproof.http.transport import Transport

KEY = "sk-test-ABC123"


def record(server: FakeServer, folder: Path, *requests: WireRequest) -> list[Path]:
    async def run() -> None:
        async with Transport(endpoint(server.url, key=KEY, env={}), policy=RetryPolicy(attempts=1)) as transport:
            sender = RecordingSender(transport, folder)
            for request in requests:
                try:
                    await sender.send(request)
                except StatusError:
                    continue

    asyncio.run(run())
    return sorted(folder.iterdir())


def test_each_exchange_becomes_a_file_that_plays_back(tmp_path: Path) -> None:
    with FakeServer() as server:
        server.on("/v1/completions", {"choices": []})
        server.on("/v1/models", {"data": []})
        server.on("/s", Reply(events=[{"a": 1}, "[DONE]"]))
        server.on("/bad", Reply(422, json={"error": {"message": f"key {KEY} is bad", "code": "x"}}))
        files = record(
            server,
            tmp_path / "new" / "folder",
            WireRequest("/v1/completions", b'{"prompt":"Hi"}'),
            WireRequest("/v1/models", method="GET"),
            WireRequest("/s", b"{}", stream=True),
            WireRequest("/bad", b"{}"),
        )
    held = [json.loads(f.read_text()) for f in files]
    assert [f.name.rpartition("-")[0] for f in files] == [
        "0001-POST-v1-completions",
        "0002-GET-v1-models",
        "0003-POST-s",
        "0004-POST-bad",
    ]
    assert held[0]["request"] == {"prompt": "Hi"}
    assert (held[0]["status"], held[0]["response"], held[0]["headers"]) == (
        200,
        {"choices": []},
        {"content-type": "application/json"},
    )
    assert held[1]["request"] is None
    assert held[2]["response_text"].startswith("data: ")
    assert (held[3]["status"], held[3]["response"]["error"]["code"]) == (422, "x")
    assert all(KEY not in f.read_text() for f in files)
    assert recording(files[0])[0] == "/v1/completions"
    assert recording(files[2])[1].body is not None


def test_what_cannot_be_written_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    class Plain:
        async def send(self, request: WireRequest) -> WireReply:
            return WireReply(200, (), b"{}")

    with pytest.raises(StoreError, match="cannot make"):
        RecordingSender(Plain(), tmp_path / "file")
    sender = RecordingSender(Plain(), tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(StoreError, match="cannot write"):
        asyncio.run(sender.send(WireRequest("/x", b"{}")))


def test_a_fault_passes_through_as_it_is(tmp_path: Path) -> None:
    class Sick:
        async def send(self, request: WireRequest) -> WireReply:
            raise ServerFault(500, "broken")

    with pytest.raises(ServerFault, match="broken"):
        asyncio.run(RecordingSender(Sick(), tmp_path).send(WireRequest("/x", b"{}")))
    assert len(list(tmp_path.iterdir())) == 1
