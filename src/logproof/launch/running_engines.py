"""The record of every engine that was started here, so that several neither collide nor get lost.

One JSON file an engine, written under one lock: a start chooses name and port, spawns and records before it lets
go, so that two starts cannot choose the same. A port is also tried by binding it, against foreign servers.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import msgspec

from logproof.errors import EngineError, UsageError
from logproof.files import read_bounded, write_atomic
from logproof.launch.places import engines_dir, locked
from logproof.launch.processes import is_alive
from logproof.launch.spec import HOST, LocalEngine

FIRST_PORT = 8100
"""Below the range from which systems and engines draw ports at random."""
LAST_PORT = 8999
_LOCK_SECONDS = 60.0
_MAX_RECORD = 1 << 20


@contextmanager
def registry_lock(waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock under which records are chosen and written."""
    with locked(engines_dir() / ".lock", _LOCK_SECONDS, waiting):
        yield


def log_path(name: str) -> Path:
    """The log of an engine; it outlives the record, until an engine of that name starts again."""
    return engines_dir() / f"{name}.log"


def find_log(name: str) -> Path:
    """The log of a running engine, or of one that has ended. Raises UsageError where there is none of that name."""
    names = {engine.name for engine in running()}
    if name not in names and not (Path(name).name == name and log_path(name).is_file()):
        find(name)
    return log_path(name)


def record(engine: LocalEngine) -> None:
    """Write or replace the record of an engine."""
    write_atomic(_path(engine.name), msgspec.json.encode(engine))


def forget(engine: LocalEngine) -> None:
    """Remove the record, unless the name is another engine's by now."""
    stored = _read(_path(engine.name))
    if stored is not None and stored.leader == engine.leader:
        _path(engine.name).unlink(missing_ok=True)


def read_records() -> list[LocalEngine]:
    """Every recorded engine, dead ones included, by name. Raises EngineError for a file that is no record."""
    engines = (_read(path) for path in engines_dir().glob("*.json"))
    return sorted((engine for engine in engines if engine is not None), key=lambda engine: engine.name)


def find(name: str) -> LocalEngine:
    """The recorded engine of that name. Raises UsageError that lists the names there are."""
    engines = {engine.name: engine for engine in read_records()}
    if name not in engines:
        raise UsageError(f"no engine is named {name!r}", hint=f"recorded: {', '.join(engines) or 'none'}")
    return engines[name]


def is_gone(engine: LocalEngine) -> bool:
    """Whether no process of the engine runs any more."""
    return not any(is_alive(m) for m in (engine.leader, *engine.members))


def running() -> list[LocalEngine]:
    """The recorded engines of which a process runs."""
    return [engine for engine in read_records() if not is_gone(engine)]


def choose_name(name: str | None, base: str, others: list[LocalEngine]) -> str:
    """`name`, or `base` with a number if others have it. Raises UsageError when `name` is taken."""
    taken = {engine.name for engine in others}
    if name is None:
        numbered = (base if n == 1 else f"{base}-{n}" for n in count(1))
        return next(name for name in numbered if name not in taken)
    if name in taken:
        raise UsageError(f"an engine named {name!r} runs already", hint=f"logproof engine stop {name}")
    return name


def choose_port(port: int | None, others: list[LocalEngine]) -> int:
    """`port`, or the first free one from FIRST_PORT on. Raises UsageError when it is, or all are, taken."""
    holders = {engine.port: engine.name for engine in others}
    if port is None:
        for candidate in range(FIRST_PORT, LAST_PORT + 1):
            if candidate not in holders and _can_bind(candidate):
                return candidate
        raise UsageError(f"no port from {FIRST_PORT} to {LAST_PORT} is free", hint="name one with --port")
    if port in holders:
        raise UsageError(f"port {port} is taken by the engine {holders[port]!r}", hint=_OTHER)
    if not _can_bind(port):
        raise UsageError(f"port {port} is taken, or not yours to use", hint=_OTHER)
    return port


_OTHER = "choose another --port, or leave it out to take a free one"


def _can_bind(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do; it lets ports of closed connections be used, never a listening one.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _path(name: str) -> Path:
    return engines_dir() / f"{name}.json"


def _read(path: Path) -> LocalEngine | None:
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(read_bounded(path, _MAX_RECORD), type=LocalEngine)
    except msgspec.DecodeError as error:
        raise EngineError(f"{path} is no record of an engine: {error}", hint="delete it") from None
