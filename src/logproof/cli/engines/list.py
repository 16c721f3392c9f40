"""`logproof engine list`: the engines that were started on this machine, and what they do now."""

from __future__ import annotations

from rich.table import Table

from logproof.cli.options import AsJson
from logproof.cli.printing import note, out, print_json
from logproof.launch import LocalEngine, list_engines
from logproof.launch.engine_state import EngineState, engine_state


def show_engines(as_json: AsJson = False) -> None:
    """List the engines that you started on this machine. A dead one is listed once, then forgotten; its log stays."""
    engines = [(engine, engine_state(engine)) for engine in list_engines()]
    if as_json:
        print_json([_row(engine, state) for engine, state in engines])
    elif not engines:
        note("no engine was started, or all were stopped")
    else:
        out.print(_table(engines))


def _row(engine: LocalEngine, state: EngineState) -> dict[str, str | int | None]:
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


def _table(engines: list[tuple[LocalEngine, EngineState]]) -> Table:
    table = Table("name", "state", "url", "model", "engine", "pid", box=None)
    for engine, state in engines:
        table.add_row(engine.name, state, engine.url, engine.served_name, engine.software, str(engine.pid))
    return table
