"""`logproof engine start`: start a local engine and wait until it answers."""

from __future__ import annotations

from typing import Annotated

import typer

from logproof.cli.engines.start_progress import start_with_progress
from logproof.cli.printing import note, out
from logproof.launch import EngineSpec
from logproof.launch.spec import SMALL_MODEL, Backend


def start(
    model: Annotated[str, typer.Argument(help="smollm2, a checkpoint folder, or OWNER/NAME on the hub.")] = SMALL_MODEL,
    flags: Annotated[list[str] | None, typer.Argument(metavar="[-- ENGINE FLAGS]", help="Passed on as is.")] = None,
    backend: Annotated[Backend, typer.Option(help="Which engine.")] = "vllm",
    port: Annotated[int | None, typer.Option(help="Port; a free one if left out.")] = None,
    name: Annotated[str | None, typer.Option(help="Name for list, logs and stop; from the model if left out.")] = None,
    served_name: Annotated[str | None, typer.Option(help="Model name that requests use.")] = None,
    dtype: Annotated[str | None, typer.Option(help="Number type; float32 makes scores reproducible.")] = None,
    plugin: Annotated[bool, typer.Option("--plugin/--no-plugin", help="Load logproof-vllm.")] = False,
    ready_timeout: Annotated[float, typer.Option(min=0.1, help="Give up after so many seconds.")] = 900.0,
) -> None:
    """Start an engine and wait until it answers. It keeps running afterwards."""
    engine_flags = list(flags or [])
    if model.startswith("-"):  # `start -- --flag`: the words after `--` fill the arguments from the first on
        model, engine_flags = SMALL_MODEL, [model, *engine_flags]
    spec = EngineSpec(
        model=model,
        backend=backend,
        port=port,
        name=name,
        served_name=served_name,
        dtype=dtype,
        plugin=plugin,
        flags=tuple(engine_flags),
        ready_seconds=ready_timeout,
    )
    engine = start_with_progress(spec)
    out.print(f"{engine.name}: {engine.served_name} on {engine.software} at {engine.url}", markup=False)
    note(f"pid {engine.pid}, log {engine.log_path}; stop it with: logproof engine stop {engine.name}")
