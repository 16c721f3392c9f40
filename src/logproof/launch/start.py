"""Start and stop engines: `start_engine`, `stop_engine`, and both around a block as `running_engine`.

    spec -> interpreter asked -> model folder -> name and port chosen, spawned, recorded -> answers -> LocalEngine

Whatever ends the start (a signal, a dead engine, a time limit) ends every process of it and its record.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from logproof.errors import UsageError
from logproof.launch.command import Target, check_flags, launch
from logproof.launch.health import wait_ready
from logproof.launch.interrupts import Interrupts
from logproof.launch.processes import end, family, spawn
from logproof.launch.running_engines import (
    choose_name,
    choose_port,
    forget,
    is_gone,
    log_path,
    read_records,
    record,
    registry_lock,
    running,
)
from logproof.launch.runtime import PLUGIN, Package, Runtime, inspect_runtime
from logproof.launch.small_model import prepare_small_model
from logproof.launch.spec import SMALL_MODEL, EngineSpec, LocalEngine, Progress, base_name


def quiet(elapsed: float, line: str) -> None:
    """A Progress that shows nothing."""


def start_engine(spec: EngineSpec, progress: Progress = quiet) -> LocalEngine:
    """Start an engine and return when it answers. It goes on until `stop_engine`, also after this process ends.

    Raises UsageError (taken name or port, flags, model), EngineError (nothing installed, did not start),
    KeyboardInterrupt or SystemExit for a signal. After an exception no process of it is left.
    """
    started: list[LocalEngine] = []
    try:
        with Interrupts() as interrupts:
            return _start(spec, interrupts.check, progress, started.append)
    except BaseException:
        for engine in started:
            stop_engine(engine)
        raise


def stop_engine(engine: LocalEngine) -> None:
    """End every process of the engine, and its record; its log stays. Nothing happens if it is gone already.

    A process that got the id of a dead one is left alone. Raises EngineError when a process cannot be ended.
    """
    with Interrupts():
        end(engine.leader, engine.members)
        with registry_lock():
            forget(engine)


@contextmanager
def running_engine(spec: EngineSpec, progress: Progress = quiet) -> Iterator[LocalEngine]:
    """An engine for the length of a block."""
    engine = start_engine(spec, progress)
    try:
        yield engine
    finally:
        stop_engine(engine)


def list_engines() -> list[LocalEngine]:
    """All recorded engines, by name; the records of dead ones are dropped, so each is listed dead once."""
    with registry_lock():
        engines = read_records()
        for engine in engines:
            if is_gone(engine):
                forget(engine)
    return engines


def _start(
    spec: EngineSpec, check: Callable[[], None], progress: Progress, started: Callable[[LocalEngine], None]
) -> LocalEngine:
    check_flags(spec.flags)
    _check_model(spec.model)
    if spec.port is not None or spec.name is not None:
        others = running()  # a name or port that is taken is said at once, not after a model was prepared
        choose_port(spec.port, others)
        choose_name(spec.name, spec.name or "", others)
    runtime = inspect_runtime()
    package = runtime.package(spec.backend)
    progress(0.0, f"{package.name} {package.version} of {runtime.python}")
    model, local = _resolve(spec, runtime, check, progress)
    with registry_lock(check):
        engine = _spawn(spec, runtime, package, model, local)
        started(engine)
        record(engine)
    wait_ready(engine, spec.ready_seconds, check, progress)
    ready = msgspec.structs.replace(engine, members=family(engine.leader))
    with registry_lock():
        record(ready)
    return ready


def _resolve(spec: EngineSpec, runtime: Runtime, check: Callable[[], None], progress: Progress) -> tuple[str, bool]:
    """The model as the engine takes it, and whether it is a folder."""
    if spec.model == SMALL_MODEL:
        return str(prepare_small_model(runtime, check, progress)), True
    path = Path(spec.model).expanduser()
    return (str(path.resolve()), True) if path.is_dir() else (spec.model, False)


def _check_model(model: str) -> None:
    """Raise UsageError for what is neither the small model, nor a folder, nor a name on the hub."""
    path = Path(model).expanduser()
    on_hub = not path.is_absolute() and not model.startswith((".", "~")) and model.count("/") == 1
    if model != SMALL_MODEL and not path.is_dir() and not on_hub:
        raise UsageError(
            f"{model} is no folder", hint=f"name {SMALL_MODEL}, a checkpoint folder, or OWNER/NAME on the hub"
        )


def _spawn(spec: EngineSpec, runtime: Runtime, package: Package, model: str, local: bool) -> LocalEngine:
    """Choose name and port and start the process; to be called under the registry's lock."""
    others = running()
    name = choose_name(spec.name, base_name(spec.model), others)
    port = choose_port(spec.port, others)
    served = spec.served_name or (Path(spec.model).name if local else spec.model)
    target = Target(model, served, port, local=local, small=spec.model == SMALL_MODEL)
    command = launch(spec, runtime, package, target, os.environ)
    return LocalEngine(
        name=name,
        backend=spec.backend,
        model=model,
        served_name=served,
        port=port,
        log_path=str(log_path(name)),
        package=package.name,
        version=package.version,
        plugin=runtime.versions.get(PLUGIN) if spec.plugin else None,
        leader=spawn(command.argv, command.env, log_path(name)),
    )
