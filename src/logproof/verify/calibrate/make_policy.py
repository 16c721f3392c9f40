"""Make a policy: live honest pairs of a trusted engine and an executor, measured and fitted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from msgspec.structs import replace

from logproof.client.connect import Connection
from logproof.verify.artifact.artifact import Artifact
from logproof.verify.calibrate.collect import CalibrationSides, HonestPairs, collect, noise_floor, replay_recorded
from logproof.verify.calibrate.fit import Aim, fit
from logproof.verify.policy import Policy, PolicyEngine
from logproof.verify.record.capture import Pins
from logproof.verify.record.prompts import Prompt
from logproof.verify.record.stated_claim import StatedClaim, claim_of
from logproof.verify.replay.replay_plan import MethodChoice


async def make_policy(
    trusted: Connection,
    executor: Connection,
    *,
    prompts: Sequence[Prompt],
    pins: Sequence[Pins],
    stated: StatedClaim,
    aim: Aim,
    honest: Sequence[Artifact] = (),
    processor: str | None = None,
    method: MethodChoice = "auto",
    concurrencies: Sequence[int] = (1, 4),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Policy:
    """Measure how far honest runs differ, and fit the policy.

    stated: what the operator states of the executor. aim: what the policy shall promise; its measured noise, its notes
    and its two engines are filled in here. honest: artifacts of other hardware that are replayed too.
    processor: name of the executor's, as its operator states it.
    progress: called with (done, total) pairs. Raises as `collect` and `fit`.
    """
    claim = claim_of(executor.facts, executor.model, stated)
    pairs = await collect(
        CalibrationSides(executor, trusted),
        prompts,
        pins,
        claim,
        method=method,
        concurrencies=concurrencies,
        progress=progress,
    )
    if honest:
        more = await replay_recorded(trusted, honest, method=method, concurrency=max(concurrencies))
        pairs = HonestPairs((*pairs.pairs, *more.pairs), (*pairs.failures, *more.failures))
    measured = replace(
        aim,
        floor=await noise_floor(trusted, pairs.pairs, method),
        notes=pairs.failures,
        executor=engine_of(executor, stated.dtype, stated.device, processor),
        verifier=engine_of(trusted),
    )
    return fit(pairs.pairs, measured, datetime.now(UTC))


def engine_of(
    connection: Connection, dtype: str | None = None, device: str | None = None, processor: str | None = None
) -> PolicyEngine:
    """An engine as a policy names it. dtype, device, processor: as its operator states them."""
    facts = connection.facts
    return PolicyEngine(name=facts.engine, version=facts.version, dtype=dtype, device=device, processor=processor)
