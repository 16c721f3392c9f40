"""Body fields that engines list: what the OpenAPI document of each says of the routes that dialects post to.

`openapi_fields.json` holds, for each engine, the version that was asked and the fields of each route. They are copied
from servers that ran; the live suite holds them against those it starts. A running endpoint is asked itself
(client/probe.py); these stand in where none is, as in the tables of the reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

import msgspec


class ListedFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One engine's version, and {route: fields of its POST body}."""

    version: str
    fields: dict[str, tuple[str, ...]]


_DATA = files("logproof.dialects").joinpath("openapi_fields.json").read_bytes()
_ENGINES = msgspec.json.decode(_DATA, type=dict[str, ListedFields])

VLLM: Mapping[str, tuple[str, ...]] = _ENGINES["vllm"].fields
"""{route: fields of its POST body} of vLLM."""
SGLANG: Mapping[str, tuple[str, ...]] = _ENGINES["sglang"].fields
"""The same of SGLang."""
