"""Commands against recorded replies, and runs against the toy engine, both behind real HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.calling import KEY
from client import served
from eval.toy import ToyEngine, serving
from fakes.server import FakeServer


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    with FakeServer() as server:
        yield served.vllm(server)


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOGPROOF_TRACEBACK", raising=False)
    monkeypatch.setenv("LOGPROOF_API_KEY", KEY)


@pytest.fixture
def engine() -> ToyEngine:
    return ToyEngine()


@pytest.fixture
def url(engine: ToyEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A toy engine's, for a test in an empty directory."""
    monkeypatch.chdir(tmp_path)
    with serving(engine) as fake:
        yield fake.url
