"""Replay: what does a trusted engine say about an artifact's own tokens?

* prefill: one prompt-scoring request over prompt and completion ids, on any stock engine that scores id prompts. It
  gives raw logprobs of every token and needs no plugin.
* decode: the replay plugin (or native trace) makes the engine emit the recorded ids and report its own distribution
  there; the only way to processed logprobs, and to those under a grammar.
The reply must hold the ids that were sent, else there is no replay. Whatever could bend one is cleared: stops, minimum
lengths, EOS. An engine that refuses or fails gives a ReplayFailure, which can only end inconclusive.

A recorded token that the engine's own list does not name is censored. `fill` asks for each of them by name instead
(scoring.label_ids). That is off by default: on vLLM 0.32 such a request spoils the top lists of requests that share a
batch with it, so it belongs on an engine that serves nobody else.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Literal

import msgspec
import numpy as np

from logproof.client.connect import Connection
from logproof.dialects.call import Call
from logproof.errors import (
    AuthError,
    BadReply,
    EndpointError,
    ModelNotFound,
    ReplayNotEnforced,
    RequestRefused,
    StatusError,
)
from logproof.ir.request import Input, Output, Replay, Request, Sampling, Scoring
from logproof.verify.artifact import artifact as art
from logproof.verify.artifact import grammar
from logproof.verify.artifact.artifact import Artifact, Mode
from logproof.verify.artifact.columns import NO_ID, Columns, Floats, Ids, columns_of, make
from logproof.verify.artifact.replay_result import Method, ReplayFailure, ReplayResult
from logproof.verify.stats.distance import max_abs, pair

MethodChoice = Literal["decode", "prefill", "auto"]
DEFAULT_WIDTH = 64
"""Entries asked a position: wide enough that few recorded tokens are missing."""
WINDOW = 1024
"""Tokens of one enforced decode; longer completions are replayed in windows."""
MAX_FILLS = 32
"""Positions whose missing tokens are asked for by name; where more have some, the two models differ plainly."""


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
    artifact: Artifact, connection: Connection, asked: MethodChoice = "auto", preferred: Method | None = None
) -> ReplayPlan | ReplayFailure:
    """Choose the method; pure. preferred: the method that `auto` takes where both would do.

    A method that cannot give the artifact's kind of logprobs is a failure with its reason.
    """
    spec = artifact.logprobs
    mode: Mode = "raw" if spec is None or spec.mode == "unknown" else spec.mode
    facts = connection.facts
    width = min(facts.max_logprobs or DEFAULT_WIDTH, max(DEFAULT_WIDTH, spec.k if spec is not None else 0))
    if mode != "raw":
        if asked == "prefill":
            return ReplayFailure("engine_cannot_replay", f"a prefill gives raw logprobs, the artifact's are {mode}")
        return _decode_plan(artifact, connection, ReplayPlan("decode", _reason(asked, mode), mode, width))
    if asked == "decode" or (asked == "auto" and preferred == "decode" and facts.has_plugin("enforced_replay")):
        reason = "asked for" if asked == "decode" else "the policy was calibrated for it"
        return _decode_plan(artifact, connection, ReplayPlan("decode", reason, mode, width))
    reason = "asked for" if asked == "prefill" else "raw logprobs need one prefill, on any engine"
    return ReplayPlan("prefill", reason, mode, width)


def _reason(asked: MethodChoice, mode: Mode) -> str:
    return "asked for" if asked == "decode" else f"{mode} logprobs exist only while decoding"


def _decode_plan(artifact: Artifact, connection: Connection, made: ReplayPlan) -> ReplayPlan | ReplayFailure:
    facts = connection.facts
    if not facts.has_plugin("enforced_replay"):
        return ReplayFailure("engine_cannot_replay", "this engine has no working replay plugin; a stock one ignores it")
    told = facts.has_plugin("logprobs_mode")
    if made.mode == "processed" and not (told or facts.logprobs_mode == "processed"):
        return ReplayFailure("engine_cannot_replay", "this engine cannot report processed logprobs")
    if made.mode == "processed" and (obstacle := _unrepeatable(artifact.sampling)) is not None:
        return ReplayFailure("engine_cannot_replay", f"processed logprobs depend on {obstacle}")
    if made.mode != "constrained":
        return made
    output = grammar.constraint(artifact.request.body, artifact.sampling.structured_output)
    if isinstance(output, str):
        return ReplayFailure("engine_cannot_replay", output)
    return msgspec.structs.replace(made, output=output)


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


def _unrepeatable(sampling: art.RecordedSampling) -> str | None:
    """What keeps a replay from the same processed distribution, or None."""
    open_ = [name for name in (*_REPEATED, *_NOT_REPEATED) if getattr(sampling, name) is None]
    if open_:
        return f"{open_[0]}, which is unresolved"
    acts = [name for name, neutral in _NOT_REPEATED.items() if getattr(sampling, name) != neutral]
    return f"{acts[0]}, which a replay does not repeat" if acts else None


async def replay(
    connection: Connection,
    artifact: Artifact,
    asked: MethodChoice = "auto",
    *,
    preferred: Method | None = None,
    repeats: int = 1,
    fill: bool = False,
) -> ReplayResult | ReplayFailure:
    """Replay an artifact that passed its own checks. repeats: replays made; the spread of several is the noise floor.

    preferred: see `plan`. fill: see the top of this file.
    Raises AuthError, ModelNotFound and UsageError (the caller's matters); every other failure of the engine is
    returned.
    """
    chosen = plan(artifact, connection, asked, preferred)
    if isinstance(chosen, ReplayFailure):
        return chosen
    start = time.monotonic()
    try:
        runs = [await _once(connection, artifact, chosen) for _ in range(max(1, repeats))]
        scored = await _filled(connection, artifact, runs[-1][0]) if fill and chosen.method == "prefill" else None
    except (AuthError, ModelNotFound):
        raise
    except (EndpointError, RequestRefused) as error:
        return _failure(error)
    columns, call = runs[-1]
    return ReplayResult(
        method=chosen.method,
        method_reason=chosen.reason,
        mode=_mode(call, chosen),
        columns=columns,
        scored=scored,
        endpoint=connection.endpoint.display,
        engine=connection.facts.engine,
        version=connection.facts.version,
        fingerprint=call.response.fingerprint,
        served_model=call.response.model,
        noise_floor=_spread([c for c, _ in runs]),
        seconds=time.monotonic() - start,
        finish_reason=call.response.choices[0].finish.reason if chosen.method == "decode" else None,
    )


def _failure(error: EndpointError | RequestRefused) -> ReplayFailure:
    """A refusal of a sound artifact is a bug or a limit of the engine; everything else is its failure."""
    if isinstance(error, ReplayNotEnforced):
        return ReplayFailure("replay_not_enforced", error.message)
    refused = isinstance(error, RequestRefused) or (
        isinstance(error, StatusError) and 400 <= error.status < 500 and error.status not in (408, 429)
    )
    return ReplayFailure("engine_cannot_replay" if refused else "engine_error", error.message)


def _spread(runs: list[Columns]) -> float | None:
    """Largest difference between the first (cold) run and any later one, nats; None for one run."""
    return max((max_abs(pair(runs[0], r)) for r in runs[1:]), default=None)


def _mode(call: Call, chosen: ReplayPlan) -> Mode:
    channel = call.response.prompt if chosen.method == "prefill" else call.response.choices[0].tokens
    return "unknown" if channel is None else channel.meaning


async def _once(connection: Connection, artifact: Artifact, chosen: ReplayPlan) -> tuple[Columns, Call]:
    ids = np.asarray(artifact.tokens.completion_ids or (), np.int64)
    prompt = np.asarray(artifact.tokens.prompt_ids or (), np.int64)
    run = _prefill if chosen.method == "prefill" else _decode
    return await run(connection, artifact, chosen, prompt, ids)


async def _prefill(
    connection: Connection, artifact: Artifact, chosen: ReplayPlan, prompt: Ids, ids: Ids
) -> tuple[Columns, Call]:
    whole = tuple(np.concatenate((prompt, ids)).tolist())
    request = Request(
        connection.model,
        Input(token_ids=whole),
        sampling=Sampling(max_tokens=1, temperature=0.0),
        scoring=Scoring(prompt=chosen.width),
    )
    call = await connection.client.call(request)
    scored = call.response.prompt
    if scored is None or scored.ids is None:
        raise BadReply("the scored prompt came without ids")
    return columns_of(scored, len(prompt)), call


def missing(own: Columns, answered: Columns) -> dict[int, list[int]]:
    """Position -> recorded ids that the answer does not list there."""
    ids, other = own.entries[0], answered.entries[0]
    lacking = (ids != NO_ID) & ~(ids[:, :, None] == other[:, None, :]).any(axis=2)
    return {int(i): ids[i][lacking[i]].tolist() for i in np.flatnonzero(lacking.any(axis=1))}


async def _filled(connection: Connection, artifact: Artifact, answered: Columns) -> Columns | None:
    """The answer with all recorded tokens named; None where none is missing, too many are, or it cannot be asked."""
    own, ids = art.columns(artifact), artifact.tokens.completion_ids or ()
    lacking = missing(own, answered) if len(own) == len(answered) else {}
    if not 0 < len(lacking) <= MAX_FILLS:
        return None
    rows = [dict(zip(r[r != NO_ID].tolist(), v[r != NO_ID].tolist(), strict=True)) for r, v in _rows(answered)]
    for at, wanted in lacking.items():
        named = await _named(connection, (*(artifact.tokens.prompt_ids or ()), *ids[:at]), wanted)
        if named is None:
            return None
        rows[at] |= named
    return make(
        answered.sampled_ids, answered.sampled_logprobs, [list(r) for r in rows], [list(r.values()) for r in rows]
    )


def _rows(columns: Columns) -> Iterator[tuple[Ids, Floats]]:
    return zip(columns.ids, columns.logprobs, strict=True)


async def _named(connection: Connection, before: tuple[int, ...], wanted: list[int]) -> dict[int, float] | None:
    """Raw logprobs of these ids behind this text; None where the engine takes no names or gives other logprobs."""
    request = Request(
        connection.model,
        Input(token_ids=before),
        sampling=Sampling(max_tokens=1, temperature=0.0),
        scoring=Scoring(label_ids=tuple(wanted)),
    )
    try:
        labels = (await connection.client.call(request)).response.choices[0].labels
    except RequestRefused:
        return None
    if labels is None or labels.meaning != "raw":
        return None
    return {t: float(v) for t, v in zip(labels.ids.tolist(), labels.logprobs[0], strict=True)}


async def _decode(
    connection: Connection, artifact: Artifact, chosen: ReplayPlan, prompt: Ids, ids: Ids
) -> tuple[Columns, Call]:
    """Enforced decode; raw ones longer than WINDOW in windows, each continuing the recorded text before it.

    Penalties and grammars act on the text before, which a window would not know: those run whole.
    """
    size = WINDOW if chosen.mode == "raw" else len(ids)
    parts, call = [], None
    for start in range(0, len(ids), size):
        piece = ids[start : start + size]
        call = await connection.client.call(_enforced(connection, artifact, chosen, prompt, ids[:start], piece))
        tokens = call.response.choices[0].tokens
        if tokens is None or tokens.ids is None:
            raise BadReply("the replayed tokens came without ids")
        parts.append(columns_of(tokens))
    if call is None:
        raise BadReply("there was nothing to replay")
    return joined(parts), call


def _enforced(
    connection: Connection, artifact: Artifact, chosen: ReplayPlan, prompt: Ids, before: Ids, piece: Ids
) -> Request:
    claimed = artifact.sampling
    processed, told = chosen.mode == "processed", connection.facts.has_plugin("logprobs_mode")
    sampling = Sampling(
        max_tokens=len(piece),
        temperature=claimed.temperature if processed else 0.0,
        top_p=claimed.top_p if processed else None,
        top_k=(claimed.top_k or -1) if processed else None,
        frequency_penalty=claimed.frequency_penalty if processed else None,
        presence_penalty=claimed.presence_penalty if processed else None,
        logit_bias={int(k): v for k, v in (claimed.logit_bias or {}).items()} or None if processed else None,
        stop=(),
    )
    options: dict[str, object] = {"ignore_eos": True, "min_tokens": 0, "stop_token_ids": []}
    if processed:
        options |= {"min_p": claimed.min_p or 0.0, "repetition_penalty": claimed.repetition_penalty or 1.0}
    return Request(
        connection.model,
        Input(token_ids=tuple(np.concatenate((prompt, before)).tolist())),
        sampling=sampling,
        scoring=Scoring(sampled=chosen.width),
        replay=Replay(
            token_ids=tuple(piece.tolist()),
            logprobs_mode=("processed" if processed else "raw") if told else None,
        ),
        output=chosen.output,
        options=options,
    )


def joined(parts: list[Columns]) -> Columns:
    """Windows one after the other, padded to the widest."""
    return make(
        np.concatenate([p.sampled_ids for p in parts]),
        np.concatenate([p.sampled_logprobs for p in parts]),
        [row[row >= 0].tolist() for p in parts for row in p.ids],
        [row[np.isfinite(row)].tolist() for p in parts for row in p.logprobs],
    )
