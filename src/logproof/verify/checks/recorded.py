"""The tests that need no engine: S0a structure, S6 end, S4 self-replay, S0b lattice, S0c sums. Milliseconds.

They run before any replay, so a malformed artifact never reaches an engine.
"""

from __future__ import annotations

from logproof.verify.artifact import artifact as art
from logproof.verify.artifact.artifact import Artifact
from logproof.verify.artifact.seeds import seed_is_bound
from logproof.verify.checks.case import Offline, drawn_by
from logproof.verify.checks.claim import check_claim
from logproof.verify.checks.end import check_end
from logproof.verify.checks.mass import check_mass
from logproof.verify.checks.rounding import check_rounding
from logproof.verify.checks.seed import check_seed_origin, check_self_replay, choice_is_bound
from logproof.verify.checks.structure import check_evidence, check_structure


def check(artifact: Artifact, trusted_profile: str | None = None, eos_ids: tuple[int, ...] | None = None) -> Offline:
    """Run the offline tests.

    trusted_profile: a sampler profile that a self-test on the engine has shown. eos_ids: ids that end a completion as
    measured on the trusted engine; they overrule the claim.
    """
    sound = check_structure(artifact)
    bound = seed_is_bound(artifact.sampling.seed) and choice_is_bound(artifact)
    if sound.outcome == "fail":
        return Offline((sound,), None, None, None, bound)
    missing = check_evidence(artifact)
    if missing is not None:
        return Offline((sound, check_end(artifact, eos_ids), missing), None, None, None, bound)
    columns, spec = art.columns(artifact), artifact.logprobs
    step = 0.0 if spec is None else spec.step
    sampler, profile = drawn_by(artifact, trusted_profile)
    findings = [
        sound,
        check_end(artifact, eos_ids, columns, sampler),
        check_self_replay(artifact, columns, sampler, profile, step),
    ]
    findings += [
        check_seed_origin(artifact, bound),
        *check_claim(artifact),
        *check_rounding(artifact, columns),
        *check_mass(artifact, columns),
    ]
    known = None if isinstance(sampler, str) else sampler
    return Offline(tuple(findings), columns, known, profile, bound)
