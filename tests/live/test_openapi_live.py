"""Every body that a dialect sends to vLLM, against the schema that the server itself publishes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.request import urlopen

import jsonschema
import pytest

from dialects import contract
from logproof.client.probe import read_facts
from logproof.dialects.dialect import Dialect
from logproof.dialects.lower import lower
from logproof.dialects.registry import FITTING, get_dialect
from logproof.errors import InvalidRequest, RequestRefused
from logproof.ir.facts import Facts

pytestmark = pytest.mark.live

SCHEMAS = {
    "vllm_native": "CompletionRequest",
    "openai_completions": "CompletionRequest",
    "openai_chat": "ChatCompletionRequest",
    "openai_responses": "ResponsesRequest",
    "anthropic_messages": "AnthropicMessagesRequest",
}
"""Dialect -> name of its request in the server's document."""


def bodies(dialect: Dialect, facts: Facts) -> Iterator[tuple[str, Any]]:
    """(leaf, body) of every leaf with every class of value that goes out to this endpoint."""
    for leaf in contract.leaves():
        for value in contract.samples(leaf):
            try:
                yield (
                    leaf,
                    json.loads(lower(contract.request_with(dialect, facts, leaf, value), dialect, facts).wire.body),
                )
            except (InvalidRequest, RequestRefused):
                continue


def documented(body: dict[str, Any]) -> dict[str, Any]:
    """The body with the ids that the document wants of earlier turns; the route makes those that are missing."""
    items = body.get("input")
    return {**body, "input": [{"id": "x", **item} for item in items]} if isinstance(items, list) else body


def check(document: dict[str, Any], dialect_id: str, facts: Facts) -> int:
    """Hold all bodies of a dialect against the document; how many there were."""
    components, name = document["components"], SCHEMAS[dialect_id]
    known, count = set(components["schemas"][name]["properties"]), 0
    whole = jsonschema.Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": components})
    for leaf, body in bodies(get_dialect(dialect_id), facts):
        assert set(body) <= known, leaf
        assert not [error.message for error in whole.iter_errors(documented(body))], (leaf, body)
        count += 1
    return count


@pytest.mark.parametrize("dialect_id", FITTING["vllm"])
def test_every_body_fits_the_server_s_own_document(engine_url: str, dialect_id: str) -> None:
    with urlopen(f"{engine_url}/openapi.json") as reply:
        document = json.load(reply)
    with urlopen(f"{engine_url}/v1/models") as reply:
        facts = read_facts({"/openapi.json": document, "/v1/models": json.load(reply)})
    assert check(document, dialect_id, facts) > 20
