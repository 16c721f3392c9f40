"""What the whole suite shares: a fake server, the commands, and the order of its tests.

Quick tests come first, then those on vLLM, then those on SGLang.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from cli.calling import Cli
from fakes.server import FakeServer
from logproof.cli.printing import err, out

# On CI the same examples every time: what fails there fails for whoever looks into it.
settings.register_profile("suite", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("suite")

LIVE = Path(__file__).parent / "live"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if LIVE in item.path.parents:
            item.add_marker(pytest.mark.live)
    items.sort(key=_phase)


def _phase(item: pytest.Item) -> int:
    if item.get_closest_marker("live") is None:
        return 0
    return 2 if "sglang_url" in getattr(item, "fixturenames", ()) else 1


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    """A server whose faults are programmed."""
    with FakeServer() as server:
        yield server


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Runs commands in this process and keeps what they print."""
    monkeypatch.setattr(out, "_file", None)
    monkeypatch.setattr(err, "_file", None)
    return Cli(capsys)
