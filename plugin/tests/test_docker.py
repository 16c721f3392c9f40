"""The image's recipe, read as text, and its guards, run."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from logproof_vllm import contract
from logproof_vllm.server import serve

FOLDER = Path(__file__).parents[2] / "docker"
GUARD = FOLDER / "guard.py"


def guard() -> ModuleType:
    spec = importlib.util.spec_from_file_location("guard", GUARD)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def instructions() -> list[tuple[str, str]]:
    """(keyword, rest) of each instruction, continuation lines joined, comments left out."""
    lines = [line for line in (FOLDER / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    parts = (line.split(None, 1) for line in joined.splitlines() if line.strip())
    return [(keyword, rest) for keyword, rest in parts]


def last_stage() -> list[tuple[str, str]]:
    found = instructions()
    start = max(i for i, (keyword, _) in enumerate(found) if keyword == "FROM")
    return found[start:]


def test_base_and_guard_name_the_same_newest_version() -> None:
    newest = contract.V1_VERSIONS[-1]
    assert ("ARG", f"BASE=vllm/vllm-openai:v{newest}") in instructions()
    assert ("ARG", f"MINOR={newest.rpartition('.')[0]}") in last_stage()
    assert last_stage()[0] == ("FROM", "${BASE}")


def test_the_guard_runs_before_anything_is_installed() -> None:
    runs = [rest for keyword, rest in last_stage() if keyword == "RUN"]
    assert 'guard.py version "${MINOR}"' in runs[0]
    assert "pip" not in runs[0]


def test_the_base_keeps_its_packages() -> None:
    installs = [rest for keyword, rest in last_stage() if "pip install" in rest]
    assert len(installs) == 1
    assert "--no-deps --no-index" in installs[0]
    assert "guard.py unchanged /opt/logproof/before --besides logproof-vllm" in installs[0]


def test_the_plugin_is_on_strict_and_the_ring_has_its_budget() -> None:
    environment = " ".join(rest for keyword, rest in last_stage() if keyword == "ENV")
    values = dict(pair.split("=", 1) for pair in environment.split())
    assert values["VLLM_PLUGINS"] == ",".join(serve.NAMES)
    assert values["LOGPROOF_STRICT"] == "1"
    assert not any("INSECURE" in name for name in values)
    chunks = int(values["VLLM_MQ_MAX_CHUNKS"])
    text = (FOLDER / "Dockerfile").read_text()
    assert f"{chunks * 16} + {chunks * 24 * 8} + {chunks * 4} = {chunks * (16 + 24 * 8 + 4)}" in text
    assert "--shm-size=4g" in text


@pytest.mark.parametrize("found", [None, "0.31.0", "0.33.0", "0.3.2", "1.32.0", "0.320.0"])
def test_another_minor_stops_the_build(found: str | None) -> None:
    assert guard().wrong_version(found, "0.32")


@pytest.mark.parametrize("found", ["0.32.0", "0.32.1", "0.32.0+cu130"])
def test_the_right_minor_builds(found: str) -> None:
    assert guard().wrong_version(found, "0.32") is None


def test_a_moved_package_stops_the_build() -> None:
    before = {"torch": "2.13", "fastapi": "1"}
    check = guard().changed
    assert check(before, {**before, "logproof-vllm": "0.1.0"}, "logproof-vllm") is None
    assert "fastapi: 1 -> 0.9" in check(before, {**before, "fastapi": "0.9"}, "logproof-vllm")
    assert "scipy" in check(before, {**before, "scipy": "1"}, "logproof-vllm")
    assert "torch" in check(before, {"fastapi": "1"}, "logproof-vllm")


def test_the_script_exits_one_with_a_line(tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, str(GUARD), *arguments], capture_output=True, text=True, check=False)

    kept = str(tmp_path / "before")
    assert run("freeze", kept).returncode == 0
    assert run("unchanged", kept, "--besides", "x").returncode == 0
    assert run("version", "0.1").returncode == 1
    assert run("version", "0.1").stderr.count("\n") == 1
    assert run().returncode == 1
