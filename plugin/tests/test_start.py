"""Settings, launcher, hooks on imports, and the status document."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from logproof_vllm import __version__, contract, hooks, plugin, runtime, settings
from logproof_vllm.fields import Limits, Vocabulary
from logproof_vllm.runtime import PASSED, STATUS, Binding
from logproof_vllm.server import endpoint, serve


@pytest.mark.parametrize("bad", ["x", "0", "-1", "1", "1.5", " 3", "3 ", "٣", "1_0", "99999999999999999999"])
def test_bad_ring_sizes_stop_the_start(monkeypatch: pytest.MonkeyPatch, bad: str) -> None:
    monkeypatch.setenv("VLLM_MQ_MAX_CHUNKS", bad)
    with pytest.raises(settings.SettingError, match="VLLM_MQ_MAX_CHUNKS"):
        settings.check()


def test_settings_have_defaults_and_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in settings.READERS:
        monkeypatch.delenv(name, raising=False)
    assert (settings.max_chunks(), settings.strict(), settings.limits()) == (None, False, Limits())
    monkeypatch.setenv("VLLM_MQ_MAX_CHUNKS", "12")
    monkeypatch.setenv("LOGPROOF_MAX_ENFORCED_TOKENS", "7")
    monkeypatch.setenv("LOGPROOF_STRICT", "1")
    assert (settings.max_chunks(), settings.strict(), settings.limits().tokens) == (12, True, 7)
    monkeypatch.setenv("LOGPROOF_STRICT", "yes")
    with pytest.raises(settings.SettingError, match="0 or 1"):
        settings.check()


def test_variables_are_registered_with_vllm_once() -> None:
    envs = SimpleNamespace(environment_variables={"VLLM_MQ_MAX_CHUNKS": "theirs"})
    settings.register(envs)
    assert envs.environment_variables["VLLM_MQ_MAX_CHUNKS"] == "theirs"
    assert set(settings.READERS) <= set(envs.environment_variables)


def test_the_launcher_adds_the_names_and_keeps_others() -> None:
    assert serve.environment({})["VLLM_PLUGINS"] == "logproof,logproof_http"
    assert serve.environment({"VLLM_PLUGINS": "a,logproof"})["VLLM_PLUGINS"] == "a,logproof,logproof_http"


@pytest.mark.parametrize("version", [None, "0.26.0", "0.33.0", "1.0", "dev", "0.3.2"])
def test_the_launcher_refuses_versions_never_tried(version: str | None) -> None:
    assert serve.refusal(version)


def test_the_launcher_becomes_the_server_or_says_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(serve, "become", lambda *given: seen.append(given))
    monkeypatch.setattr(serve, "installed_version", lambda: "0.32.0")
    serve.main(["--port", "1"])
    command, environ = seen[0]
    assert command == [sys.executable, "-m", serve.SERVER, "--port", "1"]
    assert environ["VLLM_PLUGINS"].endswith("logproof,logproof_http")
    monkeypatch.setattr(serve, "installed_version", lambda: None)
    with pytest.raises(SystemExit, match="no vLLM is installed"):
        serve.main([])


def test_an_action_waits_for_the_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "late_module_x.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    seen: list[ModuleType] = []
    hooks.when_imported("late_module_x", seen.append)
    assert not seen
    import late_module_x

    assert [module.value for module in seen] == [1]
    hooks.when_imported("late_module_x", seen.append)
    assert seen == [late_module_x, late_module_x]


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


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what a start installs, in order; the contract of the stand-in engine has one break."""
    done: list[str] = []
    envs = SimpleNamespace(environment_variables={})
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(envs=envs, __version__="0.32.0"))  # type: ignore[arg-type]
    for name, value in vars(runtime.Status()).items():
        monkeypatch.setattr(STATUS, name, value)
    monkeypatch.setattr(contract, "check", lambda: ["Sampler.forward takes (x)"])
    for name in ("ingestion", "asgi"):
        monkeypatch.setattr(getattr(plugin, name), "install", lambda name=name: done.append(name))
    monkeypatch.setattr(plugin.mq, "install", lambda chunks: done.append("mq"))
    hooks_ = {"engine": lambda: done.append("engine"), "sick": lambda: 1 / 0}
    monkeypatch.setattr(plugin, "ENGINE_HOOKS", hooks_)
    return done


def test_a_broken_contract_leaves_the_engine_alone_and_still_reads_the_fields(
    installed: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Without the ingestion hooks a server would take the fields and enforce nothing."""
    with caplog.at_level(logging.WARNING, "vllm.logproof"):
        plugin.register()
    assert installed == ["ingestion", "asgi", "mq"]
    assert "Sampler.forward takes (x)" in str(STATUS.refusal())
    (line,) = [record.getMessage() for record in caplog.records]
    assert "Sampler.forward takes (x)" in line
    assert all(version in line for version in contract.V1_VERSIONS)


def test_a_hook_that_cannot_be_installed_is_a_reason(installed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "check", list)
    plugin.register()
    assert installed == ["ingestion", "asgi", "mq", "engine"]
    assert STATUS.installed == ["engine"]
    assert "sick: ZeroDivisionError" in str(STATUS.refusal())


def test_a_strict_server_does_not_start_on_a_broken_contract(
    installed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGPROOF_STRICT", "1")
    with pytest.raises(RuntimeError, match=r"LOGPROOF_STRICT=1: .*Sampler.forward takes \(x\)"):
        plugin.register()


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
