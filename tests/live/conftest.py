"""Real engines for the live suite.

`engine_url`: a float32 vLLM, the same for the whole session: scores on it do not depend on what else runs.
`sglang_url`: an SGLang, one a test module, because one bad request can end that server.

While developing, LOGPROOF_TEST_ENGINE and LOGPROOF_TEST_SGLANG name the URL of an engine that runs already; it is
used as it is and not stopped.
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
