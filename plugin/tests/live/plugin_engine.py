"""Starts and stops a real server on the CPU, by vLLM's own module; SmolLM2 in float32. It is for what the launcher does
not start: other flags and variables than those of tests/live/engines.py.

Needs the engine packages and the prepared model (``LOGPROOF_MODEL``, or where `logproof demo` prepares it).
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")))
MODEL = os.environ.get("LOGPROOF_MODEL", str(CACHE / "logproof" / "models" / "smollm2"))
READY_SECONDS = 1500

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
    "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "PYTHONDONTWRITEBYTECODE": "1",
}  # fmt: skip
PLUGIN = {"VLLM_PLUGINS": "logproof,logproof_http"}
FLAGS = ("--dtype", "float32", "--max-logprobs", "100", "--max-model-len", "1024", "--enforce-eager")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def engine(log: Path, environment: Mapping[str, str], flags: Sequence[str] = ()) -> Iterator[str]:
    """A running server's base URL. Fails with the end of its log when it does not start."""
    port = free_port()
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", MODEL, "--served-model-name", "smollm2",
        "--host", "127.0.0.1", "--port", str(port), *FLAGS, *flags,
    ]  # fmt: skip
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **ENVIRONMENT, **environment},
            start_new_session=True,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_ready(process, url, log)
        yield url
    finally:
        process.terminate()
        try:
            with suppress(subprocess.TimeoutExpired):
                process.wait(60)
        finally:  # of a second interrupt too; the engine's workers are in its group
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def logproof(environment: Mapping[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """The client's command, run as a user runs it."""
    script = Path(sys.executable).with_name("logproof")
    return subprocess.run(
        [str(script), *words], capture_output=True, text=True, timeout=READY_SECONDS * 2, check=False, env=environment
    )


def wait_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            pytest.fail(f"the engine ended:\n{log.read_text()[-3000:]}")
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    pytest.fail(f"the engine was not ready in {READY_SECONDS} s:\n{log.read_text()[-3000:]}")
