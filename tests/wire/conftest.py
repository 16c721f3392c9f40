"""A server whose faults are programmed, for every test of this room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fakes.server import FakeServer


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    with FakeServer() as server:
        yield server
