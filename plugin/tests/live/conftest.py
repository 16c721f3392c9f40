"""What the live tests of the plugin compare: the servers of tests/live/engines.py, and engines without a server."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import plugin_wire as wire


@pytest.fixture(scope="session")
def stock_record(engine_url: str) -> dict[str, object]:
    """What a stock engine answers to the plain requests, alone and in a batch of eight."""
    return {"single": wire.record(engine_url), "batch": wire.together(engine_url, wire.stock_batch())}


@pytest.fixture(scope="session")
def server(plugin_url: str) -> str:
    """A server with the plugin on, by the launcher."""
    return plugin_url


@pytest.fixture(scope="session")
def offline(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What an engine did without the plugin (``stock``) and with it (``plugin``), each in a process of its own."""
    folder = tmp_path_factory.mktemp("offline")
    with ThreadPoolExecutor(2) as pool:  # one thread of computing each, so neither changes what the other does
        waiting = {kind: pool.submit(run_offline, kind, folder / f"{kind}.json") for kind in ("stock", "plugin")}
        return {kind: job.result() for kind, job in waiting.items()}


def run_offline(kind: str, out: Path) -> Any:
    script = Path(__file__).with_name("offline_engine.py")
    done = subprocess.run([sys.executable, str(script), kind, str(out)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.fail(f"offline_engine.py {kind}:\n{done.stderr[-3000:]}")
    return json.loads(out.read_text())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without the live tests nothing here is imported: some modules load the engine, which takes a minute."""
    return True if config.option.markexpr == "not live" and collection_path.name.startswith("test_") else None
