"""Replay many artifacts, and say how far the trusted engine's logprobs lie from the recorded ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from logproof.client.connect import Connection
from logproof.parallel import in_order
from logproof.verify.artifact.artifact import Artifact
from logproof.verify.artifact.replay_result import Method, ReplayFailure
from logproof.verify.checks.recorded import check
from logproof.verify.replay.by_prefill import missing
from logproof.verify.replay.replay import replay
from logproof.verify.replay.replay_plan import MethodChoice
from logproof.verify.stats.distance import max_abs, pair


class FailedReplay(msgspec.Struct, frozen=True):
    """An artifact that was not replayed, and why. artifact: its id."""

    artifact: str
    failure: str


class ReplayComparison(msgspec.Struct, frozen=True):
    """A replay beside its record. artifact: its id. reason: why this method.

    ids_equal: the engine emitted the recorded ids. largest_difference: of the logprobs of tokens that both name, nats.
    missing: recorded tokens that the engine's lists do not name. Both are None where the ids differ.
    noise_floor: largest difference between repeats, nats, None for one replay. seconds: wall time.
    """

    artifact: str
    method: Method
    reason: str
    tokens: int
    ids_equal: bool
    largest_difference: float | None
    missing: int | None
    noise_floor: float | None
    seconds: float


async def replay_all(
    trusted: Connection,
    artifacts: Sequence[Artifact],
    method: MethodChoice = "auto",
    *,
    repeats: int = 1,
    fill: bool = False,
    concurrency: int = 1,
) -> list[ReplayComparison | FailedReplay]:
    """One comparison an artifact, in order; at most `concurrency` in flight. Options and errors as `replay`."""
    one = partial(compare, trusted, method=method, repeats=repeats, fill=fill)
    return await in_order([partial(one, artifact) for artifact in artifacts], concurrency)


async def compare(
    trusted: Connection, artifact: Artifact, method: MethodChoice = "auto", *, repeats: int = 1, fill: bool = False
) -> ReplayComparison | FailedReplay:
    """Replay one artifact, unless its own checks refuse it, and compare. Raises as `replay`."""
    checked = check(artifact)
    if checked.case is None:
        detail = next((f.detail for f in checked.findings if f.outcome != "pass"), "it cannot be replayed")
        return FailedReplay(artifact.artifact_id, detail)
    answer = await replay(trusted, artifact, method, repeats=repeats, fill=fill)
    if isinstance(answer, ReplayFailure):
        return FailedReplay(artifact.artifact_id, f"{answer.reason}: {answer.detail}")
    own, theirs = checked.case.columns, answer.columns if answer.scored is None else answer.scored
    same = len(answer.columns) == len(own) and bool((answer.columns.sampled_ids == own.sampled_ids).all())
    return ReplayComparison(
        artifact=artifact.artifact_id,
        method=answer.method,
        reason=answer.method_reason,
        tokens=len(answer.columns),
        ids_equal=same,
        largest_difference=max_abs(pair(own, theirs)) if same else None,
        missing=sum(map(len, missing(own, theirs).values())) if same else None,
        noise_floor=answer.noise_floor,
        seconds=round(answer.seconds, 3),
    )
