from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from logproof.errors import EngineError, UsageError
from logproof.launch import EngineSpec, StartFailed, list_engines, running_engine, start_engine, stop_engine
from logproof.launch.health import answers
from logproof.launch.processes import family, is_alive
from logproof.launch.running_engines import read_records
from logproof.launch.spec import LocalEngine


def _in_group_of(engine: LocalEngine) -> list[int]:
    return [m.pid for m in family(engine.leader)]


def _engine_processes(word: str) -> list[psutil.Process]:
    """Running processes with the word on their command line."""
    found = psutil.process_iter(["cmdline", "status"])
    return [p for p in found if any(word in part for part in p.info["cmdline"] or ()) and p.info["status"] != "zombie"]


def test_an_engine_runs_from_start_to_stop(checkpoint: str) -> None:
    seen: list[str] = []
    with running_engine(EngineSpec(model=checkpoint), lambda _, line: seen.append(line)) as engine:
        assert answers(engine.port)
        assert (engine.name, engine.served_name, engine.model) == ("my-model_1", "My Model_1", checkpoint)
        assert (engine.package, engine.version, engine.plugin) == ("vllm", "9.9.9", None)
        assert engine.ready
        assert read_records() == [engine]
        assert any("vllm 9.9.9" in line for line in seen)
        assert f"--port {engine.port}" in Path(engine.log_path).read_text()
    assert not is_alive(engine.leader)
    assert read_records() == []
    assert not answers(engine.port)
    assert Path(engine.log_path).exists()


def test_several_engines_at_once_do_not_collide(checkpoint: str) -> None:
    spec = EngineSpec(model=checkpoint)
    engines: list[LocalEngine] = []
    threads = [threading.Thread(target=lambda: engines.append(start_engine(spec))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for column in ("name", "port", "pid", "log_path"):
        assert len({getattr(engine, column) for engine in engines}) == 4
    assert {e.name for e in engines} == {"my-model_1", "my-model_1-2", "my-model_1-3", "my-model_1-4"}
    stop_engine(engines[0])
    assert all(answers(engine.port) for engine in engines[1:])


def test_the_small_model_is_the_default_and_made_once(tmp_path: Path) -> None:
    folder = tmp_path / "cache/logproof/models/smollm2"
    with running_engine(EngineSpec()) as engine:
        assert (engine.model, engine.served_name, engine.name) == (str(folder), "smollm2", "smollm2")
        made = folder.stat().st_mtime_ns
    with running_engine(EngineSpec()):
        assert folder.stat().st_mtime_ns == made


def test_a_dying_engine_fails_with_its_cause_and_last_lines(checkpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE", "die")
    with pytest.raises(StartFailed, match=r"exit code 7.*ValueError: the weights are broken") as caught:
        start_engine(EngineSpec(model=checkpoint))
    assert caught.value.lines[-1] == "RuntimeError: engine core failed, see above"
    assert caught.value.hint is not None
    assert "my-model_1.log" in caught.value.hint
    assert read_records() == []


def test_a_killed_engine_is_named_by_its_signal(checkpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE", "killed")
    with pytest.raises(StartFailed, match="signal 9"):
        start_engine(EngineSpec(model=checkpoint))


@pytest.mark.parametrize("mode", ["mute", "unwell"])
def test_an_engine_that_never_answers_is_ended(mode: str, checkpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE", mode)
    with pytest.raises(StartFailed, match=r"did not answer within 0\.3 s"):
        start_engine(EngineSpec(model=checkpoint, ready_seconds=0.3))
    assert _engine_processes(checkpoint) == []
    assert read_records() == []


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_during_the_start_leaves_nothing(
    number: signal.Signals, raised: type[BaseException], checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE", "mute-stubborn-forks")
    before = signal.getsignal(number)
    with pytest.raises(raised):
        start_engine(EngineSpec(model=checkpoint), _once_running(lambda: os.kill(os.getpid(), number)))
    assert _engine_processes(checkpoint) == []
    assert read_records() == []
    assert signal.getsignal(number) is before


def test_progress_tells_what_the_log_says_or_that_it_says_nothing(
    checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE", "mute")
    lines: list[str] = []
    with pytest.raises(StartFailed):
        start_engine(EngineSpec(model=checkpoint, ready_seconds=2.0), lambda elapsed, line: lines.append(line))
    assert lines[0].startswith("vllm 9.9.9 of ")
    assert lines[-1].startswith("its log: plugins ")
    assert all(line.startswith("its log: ") or line == "it has logged nothing yet" for line in lines[1:])


def _once_running(act: Callable[[], None]) -> Callable[[float, str], None]:
    def progress(elapsed: float, line: str) -> None:
        if read_records():
            act()

    return progress


def test_stop_ends_workers_and_what_ignores_sigterm(checkpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE", "serve-stubborn-forks")
    engine = start_engine(EngineSpec(model=checkpoint))
    assert len(engine.members) == 2
    stop_engine(engine)
    assert not any(is_alive(m) for m in engine.members)
    stop_engine(engine)


def test_stop_ends_the_workers_of_a_dead_leader(checkpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE", "serve-forks")
    engine = start_engine(EngineSpec(model=checkpoint))
    os.kill(engine.pid, signal.SIGKILL)
    os.waitpid(engine.pid, 0)
    assert [is_alive(m) for m in engine.members].count(True) == 1
    assert list_engines() == [engine]
    assert read_records() == [engine]
    stop_engine(engine)
    assert not any(is_alive(m) for m in engine.members)


def test_a_dead_engine_is_listed_once(checkpoint: str) -> None:
    engine = start_engine(EngineSpec(model=checkpoint))
    os.kill(engine.pid, signal.SIGKILL)
    os.waitpid(engine.pid, 0)
    assert list_engines() == [engine]
    assert list_engines() == []


def test_taken_names_and_ports_are_refused(checkpoint: str) -> None:
    with running_engine(EngineSpec(model=checkpoint, name="one")) as engine:
        with pytest.raises(UsageError, match="'one' runs already"):
            start_engine(EngineSpec(model=checkpoint, name="one"))
        with pytest.raises(UsageError, match="taken by the engine 'one'"):
            start_engine(EngineSpec(model=checkpoint, port=engine.port))
    with socket.create_server(("127.0.0.1", 0)) as foreign, pytest.raises(UsageError, match="is taken, or not yours"):
        start_engine(EngineSpec(model=checkpoint, port=foreign.getsockname()[1]))


def test_an_answer_of_another_program_is_no_health(checkpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_engine(EngineSpec(model=checkpoint, name="one")) as other:
        monkeypatch.setenv("FAKE", "mute")
        monkeypatch.setattr("logproof.launch.start.choose_port", lambda wanted, others: other.port)
        with pytest.raises(EngineError, match=f"another program answers on port {other.port}"):
            start_engine(EngineSpec(model=checkpoint, name="two"))


@pytest.mark.parametrize("model", ["./absent", "absent", "/absent/model", "a/b/c", "~/absent-model"])
def test_a_model_that_is_no_folder_is_refused(model: str) -> None:
    with pytest.raises(UsageError, match="is no folder"):
        start_engine(EngineSpec(model=model))


def test_a_hub_name_is_passed_on() -> None:
    with running_engine(EngineSpec(model="Owner/Name-1B", served_name="short")) as engine:
        assert (engine.model, engine.served_name, engine.name) == ("Owner/Name-1B", "short", "name-1b")


def test_sglang_is_started_with_its_stubs(checkpoint: str, monkeypatch: pytest.MonkeyPatch, packages: Path) -> None:
    monkeypatch.setenv("LOGPROOF_SGLANG_STUBS", "stubs-folder")
    with running_engine(EngineSpec(model=checkpoint, backend="sglang")) as engine:
        log = Path(engine.log_path).read_text()
    assert (engine.package, engine.version) == ("sglang", "8.8.8")
    assert f"stubs stubs-folder:{packages}" in log
    assert "--device=cpu" in log


def test_the_plugin_is_loaded_only_when_asked(checkpoint: str) -> None:
    with running_engine(EngineSpec(model=checkpoint, plugin=True)) as engine:
        assert engine.plugin == "7.7.7"
        assert "logproof,logproof-http" in Path(engine.log_path).read_text()
    with running_engine(EngineSpec(model=checkpoint)) as engine:
        assert engine.plugin is None
        assert "logproof," not in Path(engine.log_path).read_text()
