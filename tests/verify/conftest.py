from __future__ import annotations

from collections.abc import Iterator

import pytest

from fakes.server import FakeServer


@pytest.fixture
def other() -> Iterator[FakeServer]:
    """A second server whose faults are programmed."""
    with FakeServer() as server:
        yield server
