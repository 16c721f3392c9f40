from __future__ import annotations

import os
import socket

import msgspec
import pytest

from logproof.errors import EngineError, UsageError
from logproof.launch import running_engines
from logproof.launch.places import engines_dir
from logproof.launch.processes import mark
from logproof.launch.running_engines import (
    choose_name,
    choose_port,
    find,
    forget,
    is_gone,
    read_records,
    record,
    running,
)
from logproof.launch.spec import LocalEngine, Mark

DEAD = Mark(2**22 + 1, "never")


def engine(name: str, port: int = 1, leader: Mark = DEAD) -> LocalEngine:
    return LocalEngine(
        name=name,
        backend="vllm",
        model="/m",
        served_name="m",
        port=port,
        log_path="/absent/log",
        package="vllm",
        version="1",
        plugin=None,
        leader=leader,
    )


def test_records_come_back_as_they_were() -> None:
    own = mark(os.getpid())
    assert own is not None
    alive = engine("b", leader=own)
    record(alive)
    record(engine("a"))
    assert read_records() == [engine("a"), alive]
    assert find("b") == alive
    assert running() == [alive]
    assert is_gone(engine("a"))
    forget(alive)
    forget(alive)
    assert read_records() == [engine("a")]


def test_a_record_that_is_another_engines_by_now_is_kept() -> None:
    record(engine("a"))
    forget(msgspec.structs.replace(engine("a"), leader=Mark(1, "other")))
    assert read_records() == [engine("a")]


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="'c'") as caught:
        find("c")
    assert caught.value.hint == "recorded: none"
    record(engine("a"))
    with pytest.raises(UsageError) as caught:
        find("c")
    assert caught.value.hint == "recorded: a"


def test_a_broken_record_is_named() -> None:
    path = engines_dir() / "x.json"
    path.write_text("{")
    with pytest.raises(EngineError, match=r"x\.json is no record") as caught:
        read_records()
    assert caught.value.hint == "delete it"
    path.unlink()


def test_names_are_numbered_past_those_in_use() -> None:
    others = [engine("m"), engine("m-2")]
    assert choose_name(None, "m", others) == "m-3"
    assert choose_name(None, "n", others) == "n"
    assert choose_name("n", "m", others) == "n"
    with pytest.raises(UsageError, match="'m' runs already"):
        choose_name("m", "m", others)


def test_a_free_port_is_neither_recorded_nor_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as foreign:
        bound = foreign.getsockname()[1]
        monkeypatch.setattr(running_engines, "FIRST_PORT", bound)
        monkeypatch.setattr(running_engines, "LAST_PORT", bound)
        with pytest.raises(UsageError, match=f"no port from {bound} to {bound} is free"):
            choose_port(None, [])
    assert choose_port(None, []) == bound
    assert choose_port(bound, []) == bound
    with pytest.raises(UsageError, match="no port"):
        choose_port(None, [engine("m", bound)])
