"""What the entry point installs, and when it refuses to."""

from __future__ import annotations

import importlib
import logging
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from logproof_vllm import contract, plugin, runtime
from logproof_vllm.runtime import STATUS
from logproof_vllm.server import serve


def test_every_entry_point_names_something_that_exists() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    targets = {**project["scripts"]}
    for group in project["entry-points"].values():
        targets |= group
    assert set(targets) == {"logproof-vllm", *serve.NAMES}
    for target in targets.values():
        module, _, name = target.partition(":")
        assert callable(getattr(importlib.import_module(module), name))


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what a start installs, in order; the contract of the stand-in engine has one break."""
    done: list[str] = []
    envs = SimpleNamespace(environment_variables={})
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(envs=envs, __version__="0.32.0"))  # type: ignore[arg-type]
    for name, value in vars(runtime.Status()).items():
        monkeypatch.setattr(STATUS, name, value)
    monkeypatch.setattr(contract, "check", lambda: ["Sampler.forward takes (x)"])
    monkeypatch.setattr(plugin.v1_trial, "check", list)
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


def test_a_trial_that_fails_is_a_reason(installed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "check", list)
    monkeypatch.setattr(plugin.v1_trial, "check", lambda: ["the sampler does not emit"])
    plugin.register()
    assert installed == ["ingestion", "asgi", "mq"]
    assert "the sampler does not emit" in str(STATUS.refusal())


def test_a_version_never_tried_is_told_with_the_versions_once(
    installed: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(contract, "check", lambda: [contract.untried("0.99.0")])
    with caplog.at_level(logging.WARNING, "vllm.logproof"):
        plugin.register()
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.count(contract.supported()) == 1
