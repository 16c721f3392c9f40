"""A LiteLLM proxy in front of an engine: a real gateway, started and stopped around a block."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / ".venv-gateway" / "bin" / "litellm"
KEY = "logproof-local-key-0123456789abcdef"
"""Its key, which counts for nothing outside a test."""

CONFIG = """
model_list:
  - model_name: smollm2
    litellm_params: {{model: hosted_vllm/smollm2, api_base: "{engine}/v1", api_key: none}}
general_settings: {{master_key: {key}}}
"""
QUIET = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_TELEMETRY": "False",
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
    "DO_NOT_TRACK": "1",
}
LONGEST_START_S = 300
LONGEST_STOP_S = 30


@contextmanager
def running_gateway(engine: str, folder: Path) -> Iterator[str]:
    """URL of a proxy that serves `smollm2` of the engine at this URL. folder: for its configuration and its log.

    Raises RuntimeError where it is not installed or does not start.
    """
    if not PROGRAM.exists():
        raise RuntimeError(f"{PROGRAM} is missing: `make gateway` builds its environment")
    (folder / "config.yaml").write_text(CONFIG.format(engine=engine, key=KEY))
    port, log = _free_port(), folder / "log"
    command = [str(PROGRAM), "--config", str(folder / "config.yaml"), "--host", "127.0.0.1", "--port", str(port)]
    with log.open("w") as lines:
        process = subprocess.Popen(command, env={**os.environ, **QUIET}, stdout=lines, stderr=lines)
    try:
        _wait_for(f"http://127.0.0.1:{port}/health/liveliness", process, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        _stop(process)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + LONGEST_START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=2).close()
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
        else:
            return
    raise RuntimeError(f"the LiteLLM proxy did not start: {log.read_text()[-800:]}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(LONGEST_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
