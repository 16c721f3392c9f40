"""Fixtures shared by the tests that need no engine."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest


class ValidationError(Exception):
    """Stands for ``vllm.exceptions.VLLMValidationError``."""

    def __init__(self, message: str, *, parameter: str | None = None, value: object = None) -> None:
        super().__init__(message)
        self.parameter = parameter
        self.value = value


@pytest.fixture
def stub_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """``vllm.exceptions`` without the engine, so that these tests run on a machine that has none."""
    package, exceptions = ModuleType("vllm"), ModuleType("vllm.exceptions")
    exceptions.__dict__["VLLMValidationError"] = ValidationError
    monkeypatch.setitem(sys.modules, "vllm", package)
    monkeypatch.setitem(sys.modules, "vllm.exceptions", exceptions)
