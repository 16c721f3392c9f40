"""The tests on a replay: alignment, S1 distribution, S2 seed, S2g greedy, S3 sampling. Pure; replay.py made the calls.

One artifact may be rejected by three statistical tests, among which policy.SHARES splits the policy's level. A test
without calibration for this length is unknown, never passed.
"""

from __future__ import annotations

from logproof.verify.artifact.artifact import Artifact
from logproof.verify.artifact.columns import Columns
from logproof.verify.check_table import ALIGNMENT, SAMPLING, SEED
from logproof.verify.checks.case import Offline
from logproof.verify.checks.distribution import check_distribution
from logproof.verify.checks.sampling import check_greedy, check_sampling
from logproof.verify.checks.seed import check_seed
from logproof.verify.policy import Policy
from logproof.verify.stats.align import misalignment
from logproof.verify.stats.support import claimed
from logproof.verify.verdict import Finding


def check(
    artifact: Artifact,
    offline: Offline,
    verifier: Columns,
    replay_mode: str,
    policy: Policy,
    scored: Columns | None = None,
) -> list[Finding]:
    """All findings of one replay. The replay's ids must be the artifact's: else one finding says so and nothing else
    runs. scored: rows that name every recorded token, for the distances alone."""
    if offline.columns is None or artifact.logprobs is None:
        raise ValueError("an artifact without columns was replayed")
    drawn_from = claimed(artifact.sampling, "raw")
    plain = not isinstance(drawn_from, str) and drawn_from.plain
    wrong = misalignment(offline.columns, verifier, artifact.logprobs.mode, replay_mode, same_when_plain=plain)
    if wrong is not None:
        return [Finding(test=ALIGNMENT.id, outcome="unknown", reason=wrong.reason, detail=wrong.detail)]
    found = [*check_distribution(artifact, offline.columns, verifier if scored is None else scored, policy)]
    if offline.sampler is None:
        detail = "the claimed sampling is not fully known, or cannot be repeated on these logprobs"
        return [*found, Finding(test=SAMPLING.id, outcome="unknown", reason="sampler_unknown", detail=detail)]
    if offline.sampler.greedy:
        return [*found, check_greedy(verifier, policy)]
    seed = check_seed(artifact, offline, verifier, policy)
    free = policy.level_of(SEED) if seed.outcome == "unknown" else 0.0
    return [*found, seed, check_sampling(artifact, offline, verifier, policy, policy.level_of(SAMPLING) + free)]
