"""Alignment: whether a replay may be compared with an artifact at all, before any distance.

Order: ids, lengths, meaning of the logprobs. A replay whose ids are not the ids that were sent proves that
the engine enforced nothing; no distance is then computed. Each problem says who is at fault: the artifact (the
verdict may be invalid) or nobody (inconclusive).
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from logproof.verify.artifact.columns import Columns, Ids

Problem = Literal["replay_not_enforced", "mode_unknown", "modes_differ", "engine_cannot_replay"]


class Misalignment(msgspec.Struct, frozen=True):
    """Why two records cannot be compared. position: first token that differs, None where it is not about one."""

    reason: Problem
    detail: str
    position: int | None = None


def first_difference(left: Ids, right: Ids) -> int | None:
    """Index of the first differing element of two id arrays; the shorter length where one continues; None if equal."""
    n = min(len(left), len(right))
    differs = np.flatnonzero(left[:n] != right[:n])
    if len(differs):
        return int(differs[0])
    return None if len(left) == len(right) else n


def misalignment(
    artifact: Columns, replay: Columns, artifact_mode: str, replay_mode: str, *, same_when_plain: bool = False
) -> Misalignment | None:
    """The first reason against a comparison, or None.

    artifact_mode, replay_mode: raw, processed or unknown. same_when_plain: the claimed sampling is temperature 1
    without cuts and penalties, where raw and processed are the same numbers.
    """
    at = first_difference(artifact.sampled_ids, replay.sampled_ids)
    if at is not None:
        return Misalignment("replay_not_enforced", _difference(artifact, replay, at), at)
    if "unknown" in (artifact_mode, replay_mode):
        side = "artifact" if artifact_mode == "unknown" else "replay"
        return Misalignment("mode_unknown", f"the {side} does not say whether its logprobs are raw or processed")
    if artifact_mode != replay_mode and not same_when_plain:
        return Misalignment("modes_differ", f"the artifact's logprobs are {artifact_mode}, the replay's {replay_mode}")
    return None


def _difference(artifact: Columns, replay: Columns, at: int) -> str:
    if at >= min(len(artifact), len(replay)):
        return f"{len(artifact)} tokens were sent, {len(replay)} came back"
    return f"token {at}: sent {artifact.sampled_ids[at]}, came back {replay.sampled_ids[at]}"
