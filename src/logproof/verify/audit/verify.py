"""Verify: replay artifacts on a trusted engine and judge them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

from logproof.client.connect import Connection
from logproof.parallel import in_order
from logproof.verify.artifact.artifact import Artifact
from logproof.verify.artifact.replay_result import ReplayFailure, ReplayResult
from logproof.verify.audit.explain import explained
from logproof.verify.checks import recorded
from logproof.verify.judge import judge
from logproof.verify.policy import Policy
from logproof.verify.replay.replay import replay
from logproof.verify.replay.replay_plan import MethodChoice
from logproof.verify.verdict import Verdict


async def verify(
    trusted: Connection,
    artifact: Artifact,
    policy: Policy | None,
    method: MethodChoice = "auto",
    *,
    repeats: int = 1,
    fill: bool = False,
    explain: bool = False,
) -> tuple[ReplayResult | ReplayFailure | None, Verdict]:
    """Replay one artifact and judge it. One that its own checks refuse never reaches the engine.

    method auto takes the policy's method where it can. repeats, fill: see `replay`. explain: where the distribution
    failed, try other prompts (explain.py), at one more replay each.
    Raises AuthError, ModelNotFound, UsageError: the caller's matters.
    """
    answer = None
    if recorded.check(artifact).replayable:
        preferred = None if policy is None else policy.method
        answer = await replay(trusted, artifact, method, preferred=preferred, repeats=repeats, fill=fill)
    verdict = judge(artifact, answer, policy, datetime.now(UTC))
    if explain and isinstance(answer, ReplayResult) and policy is not None:
        verdict = await explained(trusted, artifact, answer, policy.sigma, verdict)
    return answer, verdict


async def verify_all(
    trusted: Connection,
    artifacts: Sequence[Artifact],
    policy: Policy | None,
    method: MethodChoice = "auto",
    *,
    repeats: int = 1,
    fill: bool = False,
    explain: bool = False,
    concurrency: int = 1,
) -> list[Verdict]:
    """The verdicts in order, at most `concurrency` replays in flight. Options and errors are those of `verify`."""
    one = partial(verify, trusted, policy=policy, method=method, repeats=repeats, fill=fill, explain=explain)
    return [verdict for _, verdict in await in_order([partial(one, a) for a in artifacts], concurrency)]


def verify_offline(artifacts: Sequence[Artifact], policy: Policy | None) -> list[Verdict]:
    """The verdicts of the tests that need no engine, in order."""
    now = datetime.now(UTC)
    return [judge(artifact, None, policy, now) for artifact in artifacts]
