"""The launcher."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from logproof_vllm.server import serve


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
