"""Order of the whole suite: quick tests, then those on vLLM, then those on SGLang, so that engines start once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

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
