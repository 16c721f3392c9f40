"""The fields that engines list are data of the package."""

from __future__ import annotations

from importlib.resources import files

import pytest

from logproof.dialects import openapi_fields


def test_the_data_lies_in_the_package() -> None:
    assert files("logproof.dialects").joinpath("openapi_fields.json").is_file()


@pytest.mark.parametrize("listed", [openapi_fields.VLLM, openapi_fields.SGLANG])
def test_each_route_lists_each_field_once(listed: dict[str, tuple[str, ...]]) -> None:
    for route, fields in listed.items():
        assert route.startswith("/")
        assert len(set(fields)) == len(fields) > 10


def test_what_the_dialects_rely_on_is_listed() -> None:
    assert "logprob_token_ids" in openapi_fields.VLLM["/v1/completions"]
    assert "token_ids_logprob" in openapi_fields.SGLANG["/generate"]
