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
from functools import partial

import numpy as np

from logproof.client.connect import Connection
from logproof.client.unspoiled import ask_unspoiled
from logproof.dialects.call import Call
from logproof.errors import (
    AuthError,
    EndpointError,
    ModelNotFound,
    ReplayNotEnforced,
    RequestRefused,
    SpoiledTopList,
    StatusError,
)
from logproof.verify.artifact.artifact import Artifact, Mode
from logproof.verify.artifact.columns import Columns
from logproof.verify.artifact.replay_result import Method, ReplayFailure, ReplayResult
from logproof.verify.replay.by_decode import decode
from logproof.verify.replay.by_prefill import fill_missing, prefill
from logproof.verify.replay.replay_plan import MethodChoice, ReplayPlan, plan
from logproof.verify.stats.distance import max_abs, pair


async def replay(
    connection: Connection,
    artifact: Artifact,
    method: MethodChoice = "auto",
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
    chosen = plan(artifact, connection.facts, method, preferred)
    if isinstance(chosen, ReplayFailure):
        return chosen
    start = time.monotonic()
    try:
        runs = [await ask_unspoiled(partial(_once, connection, artifact, chosen)) for _ in range(max(1, repeats))]
        scored = await fill_missing(connection, artifact, runs[-1][0]) if fill and chosen.method == "prefill" else None
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
        vocab_size=connection.facts.vocab_size,
        noise_floor=_spread([c for c, _ in runs]),
        seconds=time.monotonic() - start,
        finish_reason=call.response.choices[0].finish.reason if chosen.method == "decode" else None,
    )


def _failure(error: EndpointError | RequestRefused) -> ReplayFailure:
    """A refusal of a sound artifact is a bug or a limit of the engine; everything else is its failure."""
    if isinstance(error, ReplayNotEnforced):
        return ReplayFailure("replay_not_enforced", error.message)
    if isinstance(error, SpoiledTopList):
        return ReplayFailure("top_list_spoiled", error.message)
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
    run = prefill if chosen.method == "prefill" else decode
    return await run(connection, artifact, chosen, prompt, ids)
