"""What an engine tells about the sampling it takes where a request says nothing.

vLLM's /v1/responses repeats the sampling that it used, and fills gaps from the same generation config as its chat and
completions routes (read in 0.32). It tells four of the leaves; top_k, min_p and the repetition penalty are on no wire.
"""

from __future__ import annotations

import math

import msgspec

from logproof.errors import EndpointError
from logproof.http.exchange import WireRequest
from logproof.http.transport import Sender
from logproof.ir.facts import Facts

ROUTE = "/v1/responses"


class _Echo(msgspec.Struct, frozen=True):
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None


async def told_defaults(sender: Sender, facts: Facts) -> dict[str, float]:
    """Leaf -> value that the engine says it takes by default; empty where it tells nothing. One token is generated."""
    if facts.engine != "vllm" or ROUTE not in facts.routes or not facts.models:
        return {}
    body = {"model": facts.models[0], "input": "a", "max_output_tokens": 1, "store": False}
    try:
        reply = await sender.send(WireRequest(path=ROUTE, body=msgspec.json.encode(body)))
        echo = msgspec.json.decode(reply.body, type=_Echo)
    except (EndpointError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    told = {name: getattr(echo, name) for name in _Echo.__struct_fields__}
    return {name: value for name, value in told.items() if value is not None and math.isfinite(value)}
