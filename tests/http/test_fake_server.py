"""The fake server's own promises that other tests rest on."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from fakes.server import FakeServer, recording


def test_recorded_files_of_both_formats_are_served_in_turn(tmp_path: Path) -> None:
    flat = {"method": "POST", "path": "/a", "request": {}, "status": 200, "headers": {"x": "1"}, "response": {"n": 1}}
    wrapped = {"request": {"path": "/a", "body": {}}, "status": 400, "response_headers": {}, "response": [2]}
    stream = {"path": "/b?alt=sse", "request": None, "status": 200, "response_text": "data: {}\n\n"}
    files = []
    for name, held in (("1", flat), ("2", wrapped), ("3", stream)):
        files.append(tmp_path / name)
        files[-1].write_text(json.dumps(held))
    with FakeServer() as fake:
        fake.recorded(*files)
        first = urllib.request.urlopen(f"{fake.url}/a")
        assert (first.headers["x"], json.load(first)) == ("1", {"n": 1})
        with pytest.raises(urllib.error.HTTPError, match="400"):
            urllib.request.urlopen(f"{fake.url}/a")
        streamed = urllib.request.urlopen(f"{fake.url}/b?alt=sse")
        assert (streamed.headers["content-type"], streamed.read()) == ("text/event-stream", b"data: {}\n\n")


def test_a_file_without_an_exchange_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "openapi.json"
    file.write_text('{"openapi": "3"}')
    with pytest.raises(ValueError, match="no recorded exchange"):
        recording(file)


def test_a_route_needs_an_answer() -> None:
    with pytest.raises(ValueError, match="needs an answer"):
        FakeServer().on("/a")
