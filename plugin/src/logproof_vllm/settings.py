"""Environment variables of the plugin, read once at start and registered with vLLM.

Registering makes them visible as ``vllm.envs.NAME`` and has vLLM hand them to Ray workers. They are kept out of
vLLM's compile-cache key only by being unset; setting one makes vLLM compile once more.

| variable | default | meaning |
|---|---|---|
| ``LOGPROOF_MAX_ENFORCED_TOKENS`` | 131072 | ids one request may enforce |
| ``LOGPROOF_MAX_TOP_TOKENS`` | 128 | ``top_tokens`` entries of one position |
| ``LOGPROOF_MAX_BODY_BYTES`` | 33554432 | size of a request body that uses the plugin's fields |
| ``LOGPROOF_STRICT`` | 0 | 1: refuse to start when anything is missing |
| ``VLLM_MQ_MAX_CHUNKS`` | each site's own | chunks of every shared-memory message queue |
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from logproof_vllm.fields import FieldLimits


class SettingError(RuntimeError):
    """An environment variable has a value that cannot be used; the server must not start."""


def positive(name: str, default: int | None, *, least: int = 1, most: int = 2**31 - 1) -> int | None:
    """The whole number in variable `name`, or `default` when it is unset or empty. Raises :class:`SettingError`."""
    text = os.environ.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit()) or not least <= int(text[:12]) <= most:
        raise SettingError(f"{name}={text!r}: set a whole number from {least} to {most}, or unset it")
    return int(text)


def flag(name: str) -> bool:
    """A 0/1 variable. Raises :class:`SettingError`."""
    text = os.environ.get(name, "0") or "0"
    if text not in ("0", "1"):
        raise SettingError(f"{name}={text!r}: set 0 or 1")
    return text == "1"


def max_chunks() -> int | None:
    """Chunks of every message queue; None leaves each site's own. Two chunks are the least a ring can turn on."""
    return positive("VLLM_MQ_MAX_CHUNKS", None, least=2, most=4096)


def strict() -> bool:
    return flag("LOGPROOF_STRICT")


def _required(name: str, default: int) -> int:
    value = positive(name, default)
    return default if value is None else value


def limits() -> FieldLimits:
    fallback = FieldLimits()
    return FieldLimits(
        tokens=_required("LOGPROOF_MAX_ENFORCED_TOKENS", fallback.tokens),
        top_tokens=_required("LOGPROOF_MAX_TOP_TOKENS", fallback.top_tokens),
        body_bytes=_required("LOGPROOF_MAX_BODY_BYTES", fallback.body_bytes),
    )


READERS: dict[str, Callable[[], object]] = {
    "LOGPROOF_MAX_ENFORCED_TOKENS": lambda: positive("LOGPROOF_MAX_ENFORCED_TOKENS", None),
    "LOGPROOF_MAX_TOP_TOKENS": lambda: positive("LOGPROOF_MAX_TOP_TOKENS", None),
    "LOGPROOF_MAX_BODY_BYTES": lambda: positive("LOGPROOF_MAX_BODY_BYTES", None),
    "LOGPROOF_STRICT": strict,
    "VLLM_MQ_MAX_CHUNKS": max_chunks,
}


def check() -> None:
    """Read every variable once. Raises :class:`SettingError` for the first bad one."""
    for read in READERS.values():
        read()


def register(envs: Any) -> None:
    """Add the variables to ``vllm.envs`` (`envs` is that module). Twice equals once."""
    for name, read in READERS.items():
        envs.environment_variables.setdefault(name, read)
