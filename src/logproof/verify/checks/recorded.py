"""Runs the checks that need no engine: structure, end, self-replay, seed, request, claim, rounding,
mass. Milliseconds.

They run before any replay, so a malformed artifact never reaches an engine.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from logproof.verify.artifact.artifact import Artifact, artifact_columns
from logproof.verify.artifact.request_body import filled_in
from logproof.verify.check_table import STRUCTURE
from logproof.verify.checks.case import NOTHING_KNOWN, RecordedCase, TrustedFacts, drawn_by
from logproof.verify.checks.claim import check_claim
from logproof.verify.checks.end import check_end, end_finding
from logproof.verify.checks.mass import check_mass
from logproof.verify.checks.request_match import check_request, request_finding
from logproof.verify.checks.rounding import check_rounding
from logproof.verify.checks.seed import check_seed_origin, check_self_replay, seed_origin
from logproof.verify.checks.structure import check_evidence, check_structure
from logproof.verify.verdict import Finding

RECORD_CHECKS: tuple[Callable[[RecordedCase], list[Finding]], ...] = (
    check_end,
    check_self_replay,
    check_seed_origin,
    check_request,
    check_claim,
    check_rounding,
    check_mass,
)
"""The checks of a record whose structure is sound and which holds ids and logprobs, in the order of their findings."""


class RecordFindings(msgspec.Struct, frozen=True, eq=False):
    """What the artifact alone gives. case: for the checks of a replay, None where it cannot be replayed."""

    findings: tuple[Finding, ...]
    case: RecordedCase | None = None

    @property
    def sound(self) -> bool:
        """Whether the record obeys its own rules."""
        return not any(f.test == STRUCTURE.id and f.outcome == "fail" for f in self.findings)

    @property
    def replayable(self) -> bool:
        """Whether a replay makes sense: sound, with ids and logprobs."""
        return self.case is not None


def check(artifact: Artifact, facts: TrustedFacts = NOTHING_KNOWN) -> RecordFindings:
    """Run the checks of a record. facts: what the verifier knows by itself."""
    sound = check_structure(artifact, facts)
    if sound.outcome == "fail":
        return RecordFindings((sound,))
    missing = check_evidence(artifact)
    if missing is not None:
        rest = (end_finding(artifact, facts), seed_origin(artifact), request_finding(artifact, facts))
        return RecordFindings((sound, *rest, missing))
    artifact = filled_in(artifact)
    sampler, profile = drawn_by(artifact, facts.profile, facts.required_profile)
    case = RecordedCase(artifact, artifact_columns(artifact), sampler, profile, facts)
    return RecordFindings((sound, *(finding for run in RECORD_CHECKS for finding in run(case))), case)
