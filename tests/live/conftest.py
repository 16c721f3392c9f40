"""Real engines for the live suite.

`engine_url`: a float32 vLLM, the same for the whole session: scores on it do not depend on what else runs.
`plugin_url`: the same with the replay plugin. `sglang_url`: an SGLang. One a test module each: one bad request can end
an SGLang, and no more engines than needed share the machine.

While developing, LOGPROOF_TEST_ENGINE, LOGPROOF_TEST_PLUGIN and LOGPROOF_TEST_SGLANG name the URL of an engine that
runs already; it is used as it is and not stopped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from logproof.launch import EngineSpec, running_engine

STUBS = Path(__file__).parent / "sglang_stubs"
SERVED_NAME = "smollm2"


@pytest.fixture(scope="session")
def engine_url() -> Iterator[str]:
    """Root URL of a float32 vLLM that serves `smollm2`: 2048 tokens of context, up to 100 logprobs a position."""
    yield from _running("LOGPROOF_TEST_ENGINE", EngineSpec(dtype="float32", name=f"test-vllm-{os.getpid()}"))


@pytest.fixture(scope="module")
def plugin_url() -> Iterator[str]:
    """Root URL of a float32 vLLM with logproof-vllm that serves `smollm2`."""
    spec = EngineSpec(dtype="float32", plugin=True, name=f"test-plugin-{os.getpid()}")
    yield from _running("LOGPROOF_TEST_PLUGIN", spec)


@pytest.fixture(scope="module")
def sglang_url() -> Iterator[str]:
    """Root URL of an SGLang that serves `smollm2`."""
    spec = EngineSpec(backend="sglang", dtype="bfloat16", name=f"test-sglang-{os.getpid()}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOGPROOF_SGLANG_STUBS", str(STUBS))
        yield from _running("LOGPROOF_TEST_SGLANG", spec)


def _running(variable: str, spec: EngineSpec) -> Iterator[str]:
    given = os.environ.get(variable)
    if given:
        yield given.rstrip("/")
        return
    with running_engine(spec) as engine:
        yield engine.url
