"""`logproof engine logs`: the end of an engine's log, and what is added to it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from logproof.launch.logs import follow, tail
from logproof.launch.running_engines import find_log, running


def logs(
    name: Annotated[str, typer.Argument(help="The engine's name; see `logproof engine list`.")],
    follow_it: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the engine ends.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many of the last lines.")] = 50,
) -> None:
    """Print the end of an engine's log, also of one that has ended."""
    path = find_log(name)
    if not follow_it:
        sys.stdout.write("".join(f"{line}\n" for line in tail(path, lines)))
        return
    for piece in follow(path, lines, lambda: any(engine.name == name for engine in running())):
        sys.stdout.write(piece)
        sys.stdout.flush()
