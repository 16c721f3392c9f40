"""A stock engine and one with the plugin, one after the other."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import plugin_wire as wire
from plugin_engine import PLUGIN, STOCK, engine


@pytest.fixture(scope="session")
def stock_record(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What a stock engine answers to the plain requests, alone and in a batch of eight."""
    with engine(tmp_path_factory.mktemp("stock") / "log", STOCK) as url:
        single = wire.record(url)
        return {"single": single, "batch": wire.together(url, wire.stock_batch())}


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with the plugin on; ``LOGPROOF_LIVE_URL`` names a running one instead."""
    running = os.environ.get("LOGPROOF_LIVE_URL")
    if running:
        yield running
        return
    with engine(tmp_path_factory.mktemp("plugin") / "log", PLUGIN, ["--enable-scale-out"]) as url:
        yield url


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without the live tests nothing here is imported: some modules load the engine, which takes a minute."""
    return True if config.option.markexpr == "not live" and collection_path.name.startswith("test_") else None
