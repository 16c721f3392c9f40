"""A few requests to one endpoint, one after another, as a person sends them.

What was chosen is announced, what is required is checked before anything is sent, and exchanges are recorded if asked.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from msgspec.structs import replace

from logproof.client.client import Client
from logproof.client.connect import Announce, Connection, Options, connect
from logproof.dialects.call import Call
from logproof.dialects.capabilities import plan
from logproof.dialects.registry import dialect_ids, get_dialect
from logproof.http.recording import recorder
from logproof.ir.request import Input, Request, Sampling, Scoring


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """One endpoint and how it is used.

    needs: capability -> width that the dialect must give there. record: folder for the exchanges, if they are kept.
    """

    url: str
    options: Options = Options()
    needs: dict[str, int] = {}
    record: Path | None = None


async def score(access: Access, inputs: Sequence[Input], top: int, announce: Announce) -> list[Call]:
    """Score prompts one by one, with the `top` best tokens at each position.

    Raises as `open_access` and `Client.call`.
    """
    async with open_access(access, announce) as connection:
        return [await connection.client.call(score_request(connection.model, prompt, top)) for prompt in inputs]


async def generate(access: Access, request: Request, announce: Announce) -> Call:
    """Send a request, under the name that the endpoint serves. Raises as `open_access` and `Client.call`."""
    async with open_access(access, announce) as connection:
        return await connection.client.call(replace(request, model=connection.model))


def score_request(model: str, prompt: Input, top: int) -> Request:
    """The request for a prompt's own logprobs. Engines generate one token at least, so it asks for one, greedily."""
    return Request(model, prompt, sampling=Sampling(max_tokens=1, temperature=0.0), scoring=Scoring(prompt=top))


@asynccontextmanager
async def open_access(access: Access, announce: Announce) -> AsyncIterator[Connection]:
    """Connect, announce a dialect that was chosen, and check what is needed.

    Raises as `connect`, and PlanRefused where the dialect cannot give it there.
    """
    async with connect(access.url, access.options, announce) as connection:
        client, facts = connection.client, connection.facts
        if access.options.dialect == "auto":
            announce(f"dialect {client.dialect.id}, chosen for {facts.engine} {facts.version}")
        plan(access.needs, client.dialect, facts, (get_dialect(i) for i in dialect_ids()))
        if access.record is not None:
            sender = recorder(access.record)(connection.transport)
            client = Client(sender, client.dialect, facts, tokenizer=client.tokenizer, drop=access.options.drop)
        yield replace(connection, client=client)
