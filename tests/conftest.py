"""What the whole suite shares: a fake server, and its order: quick tests, then those on vLLM, then those on SGLang."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from fakes.server import FakeServer

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
