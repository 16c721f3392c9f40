"""Replay by prefill: one prompt-scoring request over prompt and completion ids."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from logproof.client.connect import Connection
from logproof.dialects.call import Call
from logproof.errors import (
    BadReply,
    RequestRefused,
)
from logproof.ir.request import Input, Request, Sampling, Scoring
from logproof.verify.artifact.artifact import Artifact, artifact_columns
from logproof.verify.artifact.columns import NO_ID, Columns, Floats, Ids, columns_of, make_columns
from logproof.verify.replay.replay_plan import ReplayPlan

MAX_FILLS = 32
"""Positions whose missing tokens are asked for by name; where more have some, the two models differ plainly."""


async def prefill(
    connection: Connection, artifact: Artifact, chosen: ReplayPlan, prompt: Ids, ids: Ids
) -> tuple[Columns, Call]:
    """Columns of the completion, and the call. Raises BadReply where the prompt came without ids; as Client.call."""
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


async def fill_missing(connection: Connection, artifact: Artifact, answered: Columns) -> Columns | None:
    """The answer with all recorded tokens named; None where none is missing, too many are, or it cannot be asked."""
    own, ids = artifact_columns(artifact), artifact.tokens.completion_ids or ()
    lacking = missing(own, answered) if len(own) == len(answered) else {}
    if not 0 < len(lacking) <= MAX_FILLS:
        return None
    rows = [dict(zip(r[r != NO_ID].tolist(), v[r != NO_ID].tolist(), strict=True)) for r, v in _rows(answered)]
    for at, wanted in lacking.items():
        named = await _named(connection, (*(artifact.tokens.prompt_ids or ()), *ids[:at]), wanted)
        if named is None:
            return None
        rows[at] |= named
    return make_columns(
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
