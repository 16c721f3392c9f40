"""Real engines for the live tests of both suites, each started once a session, by the first test that needs it.

`engine_url`: a float32 vLLM, stock: scores on it do not depend on what else runs. `plugin_url`: the same with
logproof-vllm. `sglang_url`: a float32 SGLang. `gateway_url`: a LiteLLM proxy in front of the stock vLLM. Starting one
takes longer than the tests of most modules: they share these, and start one of their own only where flags must differ.

While developing, LOGPROOF_TEST_ENGINE, LOGPROOF_TEST_PLUGIN, LOGPROOF_TEST_SGLANG and LOGPROOF_TEST_GATEWAY name the
URL of one that runs already; it is used as it is and not stopped. `exact` says whether the vLLM is ours alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from fakes.gateway import running_gateway
from logproof.launch import EngineSpec, running_engine, stop_engine
from logproof.launch.running_engines import running

STUBS = Path(__file__).parent / "sglang_stubs"


@pytest.fixture(scope="session")
def engine_url() -> Iterator[str]:
    """Root URL of a float32 vLLM that serves `smollm2`: 2048 tokens of context, up to 100 logprobs a position."""
    yield from _running("LOGPROOF_TEST_ENGINE", EngineSpec(dtype="float32", name=f"test-vllm-{os.getpid()}"))


@pytest.fixture(scope="session")
def plugin_url() -> Iterator[str]:
    """Root URL of a float32 vLLM with logproof-vllm that serves `smollm2`: 1024 tokens of context, tool calls, and the
    route that takes ids."""
    flags = (
        "--max-model-len",
        "1024",
        "--enable-scale-out",
        "--enable-auto-tool-choice",
        "--tool-call-parser",
        "hermes",
    )
    spec = EngineSpec(dtype="float32", plugin=True, name=f"test-plugin-{os.getpid()}", flags=flags)
    yield from _running("LOGPROOF_TEST_PLUGIN", spec)


@pytest.fixture(scope="session")
def sglang_url() -> Iterator[str]:
    """Root URL of a float32 SGLang that serves `smollm2`."""
    spec = EngineSpec(backend="sglang", dtype="float32", name=f"test-sglang-{os.getpid()}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOGPROOF_SGLANG_STUBS", str(STUBS))
        yield from _running("LOGPROOF_TEST_SGLANG", spec)


@pytest.fixture(scope="session")
def gateway_url(engine_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Root URL of a LiteLLM proxy that serves `smollm2` of the vLLM; its key is fakes.gateway.KEY."""
    given = os.environ.get("LOGPROOF_TEST_GATEWAY")
    if given:
        yield given.rstrip("/")
        return
    with running_gateway(engine_url, tmp_path_factory.mktemp("gateway")) as url:
        yield url


@pytest.fixture
def exact() -> bool:
    """Whether the vLLM of `engine_url` decodes bit-identically: this session started it, so nobody shares a batch."""
    return "LOGPROOF_TEST_ENGINE" not in os.environ


def _running(variable: str, spec: EngineSpec) -> Iterator[str]:
    given = os.environ.get(variable)
    if given:
        yield given.rstrip("/")
        return
    _stop_orphans()
    try:
        with running_engine(spec) as engine:
            yield engine.url
    except SystemExit as ended:  # of a signal during the start: pytest would go on with the next test
        raise KeyboardInterrupt from ended


def _stop_orphans() -> None:
    """Stop what a killed session left; each engine's name ends with the id of the pytest that started it."""
    for engine in running():
        owner = engine.name.rpartition("-")[2]
        if owner.isdecimal() and not psutil.pid_exists(int(owner)):
            stop_engine(engine)
