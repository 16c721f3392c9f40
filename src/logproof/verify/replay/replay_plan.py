"""How an artifact will be replayed: the method, and why not where there is none. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

from logproof.ir.facts import Facts
from logproof.ir.request import Output
from logproof.verify.artifact import grammar
from logproof.verify.artifact.artifact import Artifact, Mode, RecordedSampling
from logproof.verify.artifact.replay_result import Method, ReplayFailure

MethodChoice = Literal["decode", "prefill", "auto"]
DEFAULT_WIDTH = 64
"""Entries asked a position: wide enough that few recorded tokens are missing."""


class ReplayPlan(msgspec.Struct, frozen=True):
    """How an artifact will be replayed. reason: why this method. width: entries asked a position.

    output: the recorded grammar, where there is one.
    """

    method: Method
    reason: str
    mode: Mode
    width: int
    output: Output = Output()


def plan(
    artifact: Artifact, facts: Facts, method: MethodChoice = "auto", preferred: Method | None = None
) -> ReplayPlan | ReplayFailure:
    """Choose the method. facts: of the trusted engine. preferred: the method that `auto` takes where both would do.

    A method that cannot give the artifact's kind of logprobs is a failure with its reason.
    """
    spec = artifact.logprobs
    mode: Mode = "raw" if spec is None or spec.mode == "unknown" else spec.mode
    width = min(facts.max_logprobs or DEFAULT_WIDTH, max(DEFAULT_WIDTH, spec.k if spec is not None else 0))
    if mode != "raw":
        if method == "prefill":
            return ReplayFailure("engine_cannot_replay", f"a prefill gives raw logprobs, the artifact's are {mode}")
        return _decode_plan(artifact, facts, ReplayPlan("decode", _reason(method, mode), mode, width))
    if method == "decode" or (method == "auto" and preferred == "decode" and facts.has_plugin("enforced_replay")):
        reason = "asked for" if method == "decode" else "the policy was calibrated for it"
        return _decode_plan(artifact, facts, ReplayPlan("decode", reason, mode, width))
    reason = "asked for" if method == "prefill" else "raw logprobs need one prefill, on any engine"
    return ReplayPlan("prefill", reason, mode, width)


def _reason(method: MethodChoice, mode: Mode) -> str:
    return "asked for" if method == "decode" else f"{mode} logprobs exist only while decoding"


def _decode_plan(artifact: Artifact, facts: Facts, decode: ReplayPlan) -> ReplayPlan | ReplayFailure:
    if not facts.has_plugin("enforced_replay"):
        return ReplayFailure("engine_cannot_replay", "this engine has no working replay plugin; a stock one ignores it")
    switched = facts.has_plugin("logprobs_mode")
    if decode.mode == "processed" and not (switched or facts.logprobs_mode == "processed"):
        return ReplayFailure("engine_cannot_replay", "this engine cannot report processed logprobs")
    if decode.mode == "processed" and (obstacle := _unrepeatable(artifact.sampling)) is not None:
        return ReplayFailure("engine_cannot_replay", f"processed logprobs depend on {obstacle}")
    if decode.mode != "constrained":
        return decode
    output = grammar.constraint(artifact.request.body, artifact.sampling.structured_output)
    if isinstance(output, str):
        return ReplayFailure("engine_cannot_replay", output)
    return msgspec.structs.replace(decode, output=output)


_REPEATED = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "logit_bias",
)
"""Leaves that a replay states again."""


_NOT_REPEATED: dict[str, object] = {"bad_words": (), "allowed_ids": (), "min_tokens": 0, "structured_output": ""}
"""Leaves that a replay does not state, and the values at which they do nothing."""


def _unrepeatable(sampling: RecordedSampling) -> str | None:
    """What keeps a replay from the same processed distribution, or None."""
    open_ = [name for name in (*_REPEATED, *_NOT_REPEATED) if getattr(sampling, name) is None]
    if open_:
        return f"{open_[0]}, which is unresolved"
    acts = [name for name, neutral in _NOT_REPEATED.items() if getattr(sampling, name) != neutral]
    return f"{acts[0]}, which a replay does not repeat" if acts else None
