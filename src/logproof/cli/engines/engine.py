"""`logproof engine`: the commands for local engines, one file each."""

from __future__ import annotations

import typer

from logproof.cli.engines.list import show_engines
from logproof.cli.engines.logs import logs
from logproof.cli.engines.start import start
from logproof.cli.engines.stop import stop

app = typer.Typer(help="Local engines: start a real vLLM or SGLang, list, read and stop it.", no_args_is_help=True)
app.command()(start)
app.command("list")(show_engines)
app.command()(logs)
app.command()(stop)
