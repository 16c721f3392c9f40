"""Options that several commands share, and their way into client/connect.py `Options`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from logproof.client.connect import Options
from logproof.client.pool import MAX_CONCURRENCY
from logproof.errors import UsageError, clip
from logproof.http.endpoint import timeouts_within

ModelURL = Annotated[str, typer.Option("--model", "-m", metavar="URL", help="Base URL of the endpoint.")]
DialectName = Annotated[str, typer.Option("--dialect", "-d", help="Wire to speak, or auto: the probe picks one.")]
ModelName = Annotated[str | None, typer.Option("--model-name", help="Served name, needed where there are several.")]
KeyEnv = Annotated[str | None, typer.Option("--key-env", metavar="VARIABLE", help="Variable that holds the key.")]
Header = Annotated[list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="Extra header; repeatable.")]
Timeout = Annotated[float | None, typer.Option("--timeout", help="Seconds that one attempt may take in all.")]
TokenizerPath = Annotated[Path | None, typer.Option("--tokenizer", help="Local tokenizer.json, or its directory.")]
Drop = Annotated[list[str] | None, typer.Option("--drop", metavar="LEAF", help="Leave this leaf out if refused.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def connection(
    dialect: str = "auto",
    model: str | None = None,
    *,
    key_env: str | None = None,
    header: list[str] | None = None,
    timeout: float | None = None,
    tokenizer: Path | None = None,
    drop: list[str] | None = None,
    concurrency: int = 8,
    texts: bool = True,
) -> Options:
    """The connection options of a command. Raises UsageError for a malformed header, time limit or concurrency."""
    if not 1 <= concurrency <= MAX_CONCURRENCY:
        raise UsageError(f"concurrency is {concurrency}, it goes from 1 to {MAX_CONCURRENCY}")
    return Options(
        dialect=dialect,
        model=model,
        key_env=key_env,
        headers=dict(pair("--header", text) for text in header or []),
        timeouts=timeouts_within(timeout),
        drop=tuple(drop or ()),
        tokenizer=tokenizer,
        concurrency=concurrency,
        texts=texts,
    )


def wire_options(pairs: list[str] | None, option: str = "--option") -> dict[str, object]:
    """`name=JSON` pairs as wire fields; a value that is no JSON is taken as text."""
    fields: dict[str, object] = {}
    for text in pairs or []:
        name, value = pair(option, text)
        try:
            fields[name] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            fields[name] = value
    return fields


def pair(option: str, text: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if not mark or not name:
        raise UsageError(f"{option} takes NAME=VALUE, got {clip(name, 40)!r}")
    return name, value
