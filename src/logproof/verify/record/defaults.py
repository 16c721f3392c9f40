"""Sampling that a request left to the server, resolved from what is known; each value says where it comes from.

An engine fills the gaps from the model's generation config or its own start flags, which no reply shows whole. So a
gap is filled from the engine's own word where it gives one, else from what the operator states: vLLM's neutral values,
a generation config file, or single values. Nothing is assumed: without either the leaf stays unresolved. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from logproof.errors import UsageError
from logproof.verify.artifact.artifact import RecordedSampling, Source

NEUTRAL: dict[str, float] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
"""What vLLM 0.27 to 0.32 takes for these leaves where neither request nor generation config names one."""
_OPEN = ("seed", "sources", "structured_output")
"""Fields of Sampling that belong to a request alone."""


class DefaultValue(msgspec.Struct, frozen=True):
    """One value and its source."""

    value: object
    source: Source


class Defaults(msgspec.Struct, frozen=True):
    """values: leaf -> what a request without it gets. whole: the generation config is known, so nothing else of it
    applies, such as a limit of new tokens. eos_ids: ids that end a completion, if the generation config names them.
    """

    values: dict[str, DefaultValue] = {}
    whole: bool = False
    eos_ids: tuple[int, ...] | None = None


class _Config(msgspec.Struct, frozen=True):
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    max_new_tokens: int | None = None
    eos_token_id: int | tuple[int, ...] | None = None


def neutral() -> Defaults:
    """As the operator states with `vllm`: the engine's own values, no generation config."""
    return Defaults({name: DefaultValue(value, "operator") for name, value in NEUTRAL.items()}, whole=True)


def of_config(data: bytes) -> Defaults:
    """The defaults that a vLLM takes from this generation_config.json. Raises UsageError where it is none."""
    try:
        config = msgspec.json.decode(data, type=_Config)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"this is no generation config: {error}") from None
    stated_values = {name: getattr(config, name) for name in NEUTRAL}
    values = {name: NEUTRAL[name] if value is None else value for name, value in stated_values.items()}
    if config.max_new_tokens is not None:
        values["max_tokens"] = config.max_new_tokens
    eos = config.eos_token_id
    ids = (eos,) if isinstance(eos, int) else eos
    return Defaults({k: DefaultValue(v, "generation_config") for k, v in values.items()}, whole=True, eos_ids=ids)


def of_engine(values: Mapping[str, float]) -> Defaults:
    """The defaults that an engine repeats in a reply of its own (client/probe.py)."""
    return Defaults({name: DefaultValue(value, "engine") for name, value in values.items()})


def stated(values: Mapping[str, object]) -> Defaults:
    """Single values that the operator states. Raises UsageError for a name or value that is no sampling leaf's."""
    unknown = [name for name in values if name in _OPEN or name not in RecordedSampling.__struct_fields__]
    if unknown:
        raise UsageError(f"--default {unknown[0]}: no such leaf", hint=f"leaves are {', '.join(_leaves())}")
    sampling = _converted(dict(values))
    return Defaults({name: DefaultValue(getattr(sampling, name), "operator") for name in values})


def merged(engine: Defaults, config: Defaults, single: Defaults) -> Defaults:
    """One set: single values go over the config's. Raises UsageError where the engine's own word differs from them."""
    values = {**config.values, **single.values}
    for name, known in engine.values.items():
        said = values.get(name)
        if said is not None and not _equal(said.value, known.value):
            raise UsageError(
                f"{name} is stated as {said.value}, but the engine says that it takes {known.value}",
                hint="state what the engine was started with",
            )
    return Defaults({**values, **engine.values}, config.whole, config.eos_ids)


def resolve(sampling: RecordedSampling, defaults: Defaults) -> RecordedSampling:
    """The sampling with its gaps filled as far as the defaults reach."""
    gaps = {n: k for n, k in defaults.values.items() if getattr(sampling, n) is None}
    if not gaps:
        return sampling
    sources = {**sampling.sources, **{n: k.source for n, k in gaps.items()}}
    filled = {n: k.value for n, k in gaps.items()}
    return msgspec.structs.replace(sampling, **filled, sources=sources)


def _leaves() -> list[str]:
    return [name for name in RecordedSampling.__struct_fields__ if name not in _OPEN]


def _converted(values: dict[str, object]) -> RecordedSampling:
    try:
        return msgspec.convert(values, RecordedSampling, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"--default: {error}") from None


def _equal(left: object, right: object) -> bool:
    """Equal numbers; engines keep some as float32."""
    return (
        isinstance(left, int | float)
        and isinstance(right, int | float)
        and math.isclose(left, right, rel_tol=1e-6, abs_tol=1e-9)
    )
