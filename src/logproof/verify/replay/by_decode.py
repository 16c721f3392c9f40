"""Replay by decode: an engine with the replay plugin emits the recorded ids and reports its own distribution there."""

from __future__ import annotations

import numpy as np

from logproof.client.connect import Connection
from logproof.dialects.call import Call
from logproof.errors import (
    BadReply,
)
from logproof.ir.request import Input, Replay, Request, Sampling, Scoring
from logproof.verify.artifact.artifact import Artifact
from logproof.verify.artifact.columns import Columns, Ids, columns_of, make_columns
from logproof.verify.replay.replay_plan import ReplayPlan

WINDOW = 1024
"""Tokens of one enforced decode; longer completions are replayed in windows."""


async def decode(
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
    processed, switched = chosen.mode == "processed", connection.facts.has_plugin("logprobs_mode")
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
            logprobs_mode=("processed" if processed else "raw") if switched else None,
        ),
        output=chosen.output,
        options=options,
    )


def joined(parts: list[Columns]) -> Columns:
    """Windows one after the other, padded to the widest."""
    return make_columns(
        np.concatenate([p.sampled_ids for p in parts]),
        np.concatenate([p.sampled_logprobs for p in parts]),
        [row[row >= 0].tolist() for p in parts for row in p.ids],
        [row[np.isfinite(row)].tolist() for p in parts for row in p.logprobs],
    )
