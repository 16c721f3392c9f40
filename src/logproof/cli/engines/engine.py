"""`logproof engine`: start, list, read and stop local engines."""

from __future__ import annotations

import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.status import Status
from rich.table import Table

from logproof.cli.printing import err, out, print_json, remark
from logproof.errors import UsageError, clip
from logproof.launch import Engine, EngineSpec, StartFailed, listed, start_engine, stop_engine
from logproof.launch.health import answers
from logproof.launch.logs import follow, tail
from logproof.launch.processes import is_alive
from logproof.launch.running_engines import find, is_gone, log_path, running
from logproof.launch.spec import SMALL_MODEL

app = typer.Typer(help="Local engines: start a real vLLM or SGLang, list, read and stop it.", no_args_is_help=True)

PLAIN_SECONDS = 15.0
"""Between two lines of progress where there is no terminal."""


class Backends(StrEnum):
    """Engines that can be started."""

    vllm = "vllm"
    sglang = "sglang"


@app.command()
def start(
    model: Annotated[str, typer.Argument(help="smollm2, a checkpoint folder, or OWNER/NAME on the hub.")] = SMALL_MODEL,
    flags: Annotated[list[str] | None, typer.Argument(metavar="[-- ENGINE FLAGS]", help="Passed on as is.")] = None,
    backend: Annotated[Backends, typer.Option(help="Which engine.")] = Backends.vllm,
    port: Annotated[int | None, typer.Option(help="Port; a free one if left out.")] = None,
    name: Annotated[str | None, typer.Option(help="Name for list, logs and stop; from the model if left out.")] = None,
    served_name: Annotated[str | None, typer.Option(help="Model name that requests use.")] = None,
    dtype: Annotated[str | None, typer.Option(help="Number type; float32 makes scores reproducible.")] = None,
    plugin: Annotated[bool, typer.Option("--plugin/--no-plugin", help="Load logproof-vllm.")] = False,
    ready_timeout: Annotated[float, typer.Option(min=0.1, help="Give up after so many seconds.")] = 900.0,
) -> None:
    """Start an engine and wait until it answers. It keeps running afterwards."""
    given = list(flags or [])
    if model.startswith("-"):  # `start -- --flag`: the words after `--` fill the arguments from the first on
        model, given = SMALL_MODEL, [model, *given]
    spec = EngineSpec(
        model=model,
        backend=backend.value,
        port=port,
        name=name,
        served_name=served_name,
        dtype=dtype,
        plugin=plugin,
        flags=tuple(given),
        ready_seconds=ready_timeout,
    )
    engine = start_with_progress(spec)
    out.print(f"{engine.name}: {engine.served_name} on {_what(engine)} at {engine.url}", markup=False)
    remark(f"pid {engine.pid}, log {engine.log_path}; stop it with: logproof engine stop {engine.name}")


def start_with_progress(spec: EngineSpec) -> Engine:
    """Start an engine under a progress line; after a failure print the end of its log. Raises as `start_engine`."""
    with err.status(f"starting {spec.backend}") as status:
        try:
            return start_engine(spec, _Shown(status, spec.backend))
        except StartFailed as failure:
            for line in failure.lines:
                remark(clip(line))
            raise


class _Shown:
    """A Progress on standard error: one line that changes, or a plain line now and then without a terminal."""

    def __init__(self, status: Status, backend: str) -> None:
        self._status = status
        self._backend = backend
        self._began = time.monotonic()
        self._next = 0.0

    def __call__(self, _: float, line: str) -> None:
        seconds = time.monotonic() - self._began
        text = f"starting {self._backend}, {seconds:.0f} s"
        if err.is_terminal:
            self._status.update(f"{text}: [dim]{escape(line)}[/dim]")
        elif seconds >= self._next:
            self._next = seconds + PLAIN_SECONDS
            remark(f"{text}: {line}")


@app.command("list")
def list_engines(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List the engines that you started on this machine. A dead one is listed once, then forgotten; its log stays."""
    engines = [(engine, _state(engine)) for engine in listed()]
    if as_json:
        print_json([_row(engine, state) for engine, state in engines])
    elif not engines:
        remark("no engine was started, or all were stopped")
    else:
        out.print(_table(engines))


def _state(engine: Engine) -> str:
    if is_gone(engine):
        return "dead"
    if not is_alive(engine.leader):
        return "dead, workers left"
    if answers(engine.port):
        return "ready" if engine.ready else "starting"
    return "no answer" if engine.ready else "starting"


def _row(engine: Engine, state: str) -> dict[str, str | int | None]:
    return {
        "name": engine.name,
        "state": state,
        "url": engine.url,
        "model": engine.model,
        "served_name": engine.served_name,
        "package": engine.package,
        "version": engine.version,
        "plugin": engine.plugin,
        "pid": engine.pid,
        "log": engine.log_path,
    }


def _table(engines: list[tuple[Engine, str]]) -> Table:
    table = Table("name", "state", "url", "model", "engine", "pid", box=None)
    for engine, state in engines:
        table.add_row(engine.name, state, engine.url, engine.served_name, _what(engine), str(engine.pid))
    return table


def _what(engine: Engine) -> str:
    plugin = f" + logproof-vllm {engine.plugin}" if engine.plugin else ""
    return f"{engine.package} {engine.version}{plugin}"


@app.command()
def logs(
    name: Annotated[str, typer.Argument(help="The engine's name; see `logproof engine list`.")],
    follow_it: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the engine ends.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many of the last lines.")] = 50,
) -> None:
    """Print the end of an engine's log, also of one that has ended."""
    path = _log(name)
    if not follow_it:
        sys.stdout.write("".join(f"{line}\n" for line in tail(path, lines)))
        return
    for piece in follow(path, lines, lambda: any(engine.name == name for engine in running())):
        sys.stdout.write(piece)
        sys.stdout.flush()


def _log(name: str) -> Path:
    names = {engine.name for engine in running()}
    if name not in names and not (Path(name).name == name and log_path(name).is_file()):
        find(name)
    return log_path(name)


@app.command()
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
