"""`logproof engine stop`: end local engines with all their processes."""

from __future__ import annotations

from typing import Annotated

import typer

from logproof.cli.printing import out
from logproof.errors import UsageError
from logproof.launch import stop_engine
from logproof.launch.running_engines import find, running


def stop(
    names: Annotated[list[str] | None, typer.Argument(help="Names of engines.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Stop all that you started on this machine.")] = False,
) -> None:
    """Stop engines and make sure that no process of them is left."""
    if every == bool(names):
        raise UsageError("name the engines to stop, or give --all", hint="logproof engine list")
    engines = running() if every else [find(name) for name in names or []]
    for engine in engines:
        stop_engine(engine)
        out.print(f"stopped {engine.name}", markup=False)
