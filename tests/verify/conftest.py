from __future__ import annotations

from collections.abc import Iterator

import pytest

from fakes.server import FakeServer


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    with FakeServer() as server:
        yield server


@pytest.fixture
def other() -> Iterator[FakeServer]:
    with FakeServer() as server:
        yield server
