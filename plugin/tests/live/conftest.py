"""A stock engine and one with the plugin, one after the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import plugin_wire as wire
from plugin_engine import STOCK, engine, launched


@pytest.fixture(scope="session")
def stock_record(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What a stock engine answers to the plain requests, alone and in a batch of eight."""
    with engine(tmp_path_factory.mktemp("stock") / "log", STOCK) as url:
        single = wire.record(url)
        return {"single": single, "batch": wire.together(url, wire.stock_batch())}


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with the plugin on, by the launcher; ``LOGPROOF_LIVE_URL`` names a running one instead."""
    running = os.environ.get("LOGPROOF_LIVE_URL")
    if running:
        yield running
        return
    with launched(tmp_path_factory.mktemp("plugin"), ["--enable-scale-out"]) as url:
        yield url


@pytest.fixture(scope="session")
def offline(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What an engine did without the plugin (``stock``) and with it (``plugin``), each in a process of its own."""
    folder = tmp_path_factory.mktemp("offline")
    return {kind: run_offline(kind, folder / f"{kind}.json") for kind in ("stock", "plugin")}


def run_offline(kind: str, out: Path) -> Any:
    script = Path(__file__).with_name("offline_engine.py")
    done = subprocess.run([sys.executable, str(script), kind, str(out)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.fail(f"offline_engine.py {kind}:\n{done.stderr[-3000:]}")
    return json.loads(out.read_text())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without the live tests nothing here is imported: some modules load the engine, which takes a minute."""
    return True if config.option.markexpr == "not live" and collection_path.name.startswith("test_") else None
