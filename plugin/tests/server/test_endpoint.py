"""The status document and what a start of the server does."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from logproof_vllm import __version__, contract, runtime
from logproof_vllm.fields import Vocabulary
from logproof_vllm.runtime import PASSED, STATUS, Binding
from logproof_vllm.server import endpoint


@pytest.fixture
def status(monkeypatch: pytest.MonkeyPatch) -> runtime.Status:
    binding = Binding(Vocabulary(100, 2), 64, "v1", "raw_logprobs", False)
    for name, value in vars(runtime.Status(canary=PASSED, binding=binding, vllm_version="0.32.0")).items():
        monkeypatch.setattr(STATUS, name, value)
    return STATUS


ROUTES = {"/v1/completions", "/v1/chat/completions", "/inference/v1/generate"}


def test_the_status_of_a_ready_server(status: runtime.Status) -> None:
    document: dict[str, Any] = endpoint.document(ROUTES)
    assert document["ready"]
    assert document["reason"] is None
    assert document["version"] == __version__
    assert document["off"] == {}
    assert all(document["features"][name] for name in endpoint.FEATURES)
    assert (document["vocab_size"], document["eos_token_id"], document["runner"]) == (100, 2, "v1")
    assert document["contract"] == {"checked": len(contract.SURFACE), "broken": []}


def test_the_status_names_a_reason_for_each_feature_that_is_off(status: runtime.Status) -> None:
    document: dict[str, Any] = endpoint.document(ROUTES - {"/inference/v1/generate"})
    assert document["off"].keys() == {"generate_route"}
    status.binding = Binding(Vocabulary(100), 64, "v2", "raw_logits", True)
    document = endpoint.document(ROUTES)
    assert set(document["off"]) == set(endpoint.FEATURES[:3])
    status.canary = "the workers lack the plugin"
    document = endpoint.document(ROUTES)
    assert not document["ready"]
    assert "the workers lack the plugin" in document["reason"]
    assert not any(document["features"][name] for name in endpoint.FEATURES[:3])


def test_a_v2_runner_of_another_version_is_refused(status: runtime.Status) -> None:
    status.binding = Binding(Vocabulary(100), 64, "v2", "raw_logprobs", False)
    endpoint.check_runner()
    assert status.refusal() is None
    status.vllm_version = "0.30.0"
    endpoint.check_runner()
    endpoint.check_runner()
    assert len(status.problems) == 1
    assert "VLLM_USE_V2_MODEL_RUNNER=0" in str(status.refusal())


@pytest.mark.parametrize("strict", [False, True])
def test_a_failed_canary_refuses_the_fields_or_the_start(
    status: runtime.Status, monkeypatch: pytest.MonkeyPatch, strict: bool
) -> None:
    async def fail(engine: object, tokenizer: object) -> None:
        status.canary = "asked for 1, got 2"

    binding = status.binding
    monkeypatch.setattr(endpoint, "binding_of", lambda config, tokenizer: binding)
    monkeypatch.setattr(endpoint.canary, "run", fail)
    monkeypatch.setenv("LOGPROOF_STRICT", "1" if strict else "0")
    start = endpoint.LogproofEndpoints().init_state(SimpleNamespace(vllm_config=None), None, None)
    if strict:
        with pytest.raises(RuntimeError, match="asked for 1, got 2"):
            asyncio.run(start)
    else:
        asyncio.run(start)
    assert "asked for 1, got 2" in str(status.refusal())
