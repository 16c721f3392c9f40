"""`logproof probe`: what an endpoint is, and which dialects fit it."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from logproof.cli.access.access_options import Record
from logproof.cli.access.tables import facts_table
from logproof.cli.options import AsJson, Header, KeyEnv, Timeout, connection
from logproof.cli.printing import note, out, print_json
from logproof.client.connect import discover
from logproof.dialects.registry import fitting
from logproof.http.recording import recorder


def probe(
    url: Annotated[str, typer.Argument(metavar="URL", help="Base URL of the endpoint.")],
    record: Record = None,
    key_env: KeyEnv = None,
    header: Header = None,
    timeout: Timeout = 20.0,
    as_json: AsJson = False,
) -> None:
    """Ask an endpoint what it is: engine, version, models, limits, plugin, and the dialects that fit."""
    options = connection(key_env=key_env, header=header, timeout=timeout)
    facts, _ = asyncio.run(discover(url, options, note, recorder(record)))
    if as_json:
        print_json({"facts": facts, "dialects": fitting(facts)})
    else:
        out.print(facts_table(url, facts, fitting(facts)))
