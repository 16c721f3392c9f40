"""A refusal in the two forms that a client can get it in."""

from __future__ import annotations

import json
import sys
from types import ModuleType

import pytest

from logproof_vllm.refusal import Refused
from logproof_vllm.server import bad_request


class ValidationError(Exception):
    """Stands for ``vllm.exceptions.VLLMValidationError``."""

    def __init__(self, message: str, *, parameter: str | None = None, value: object = None) -> None:
        super().__init__(message)
        self.parameter = parameter
        self.value = value


@pytest.fixture(autouse=True)
def stub_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """``vllm.exceptions`` without the engine, so that these tests run on a machine that has none."""
    package, exceptions = ModuleType("vllm"), ModuleType("vllm.exceptions")
    exceptions.__dict__["VLLMValidationError"] = ValidationError
    monkeypatch.setitem(sys.modules, "vllm", package)
    monkeypatch.setitem(sys.modules, "vllm.exceptions", exceptions)


@pytest.mark.parametrize("parameter", ["enforced_token_ids[3]", None])
def test_inside_vllm_it_is_vllms_own_error(parameter: str | None) -> None:
    with pytest.raises(ValidationError) as caught, bad_request.raised_to_server():
        raise Refused("what is wrong", parameter)
    assert (str(caught.value), caught.value.parameter) == ("what is wrong", parameter)


def test_other_errors_and_results_pass() -> None:
    error = KeyError("theirs")
    with pytest.raises(KeyError) as caught, bad_request.raised_to_server():
        raise error
    assert caught.value is error


@pytest.mark.parametrize("parameter", ["enforced_token_ids[3]", None])
def test_before_a_route_it_is_the_servers_error_form(parameter: str | None) -> None:
    assert json.loads(bad_request.error_body(Refused("what is wrong", parameter))) == {
        "error": {"message": "what is wrong", "type": "BadRequestError", "param": parameter, "code": 400}
    }
