"""Options that the access commands share, and their way into client/access.py `Access`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from logproof.cli.options import connection
from logproof.client.access import Access
from logproof.dialects.capabilities import parse_requirement

Record = Annotated[Path | None, typer.Option("--record", metavar="DIR", help="Write each exchange as a file.")]
FromFile = Annotated[Path | None, typer.Option("--file", "-f", help="Read the prompt from a file.")]
Require = Annotated[list[str] | None, typer.Option("--require", metavar="KEY[=K]", help="Capability; repeatable.")]


def access_to(
    url: str,
    dialect: str,
    model_name: str | None,
    *,
    key_env: str | None,
    header: list[str] | None,
    timeout: float | None,
    tokenizer: Path | None,
    drop: list[str] | None,
    require: list[str] | None,
    record: Path | None,
) -> Access:
    """The endpoint as the options of a command name it. Raises UsageError for a malformed one."""
    options = connection(
        dialect, model_name, key_env=key_env, header=header, timeout=timeout, tokenizer=tokenizer, drop=drop
    )
    needs = dict(parse_requirement(text) for text in require or [])
    return Access(url=url, options=options, needs=needs, record=record)
