"""What a trusted engine said of an artifact's tokens: the record that a replay makes and the judge reads."""

from __future__ import annotations

from typing import Literal

import msgspec

from logproof.verify.artifact.artifact import Mode
from logproof.verify.artifact.columns import Columns

Method = Literal["decode", "prefill"]


class ReplayFailure(msgspec.Struct, frozen=True):
    """Why there is no replay. A refusal of a sound artifact is the engine's matter, never the artifact's guilt."""

    reason: Literal["engine_error", "engine_cannot_replay", "replay_not_enforced", "top_list_spoiled"]
    detail: str


class ReplayResult(msgspec.Struct, frozen=True, eq=False):
    """What the trusted engine said about an artifact's tokens.

    columns: its distributions, with the ids that came back. scored: the same with every recorded token named, where
    that was asked; its rows are not the best tokens alone, so only distances read it. mode: what its logprobs are.
    noise_floor: largest difference between repeats of this replay, nats, None where it was made once. seconds: wall
    time of all calls. vocab_size: of the model that it runs, None where it does not tell.
    """

    method: Method
    method_reason: str
    mode: Mode
    columns: Columns
    endpoint: str
    scored: Columns | None = None
    engine: str | None = None
    version: str | None = None
    fingerprint: str | None = None
    served_model: str | None = None
    vocab_size: int | None = None
    noise_floor: float | None = None
    seconds: float = 0.0
    finish_reason: str | None = None
