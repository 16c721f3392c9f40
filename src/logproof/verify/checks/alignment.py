"""Alignment: may the replay be compared with the artifact at all? Before any distance."""

from __future__ import annotations

from logproof.verify.check_table import ALIGNMENT
from logproof.verify.checks.case import ReplayedCase
from logproof.verify.stats.align import misalignment
from logproof.verify.stats.sampler import claimed
from logproof.verify.verdict import Finding, unknown


def check_alignment(case: ReplayedCase) -> Finding | None:
    """Why nothing of this replay may be compared with the artifact; None where it may."""
    artifact = case.record.artifact
    drawn_from = claimed(artifact.sampling, "raw")
    plain = not isinstance(drawn_from, str) and drawn_from.plain
    mode = "unknown" if artifact.logprobs is None else artifact.logprobs.mode
    wrong = misalignment(case.record.columns, case.verifier, mode, case.mode, same_when_plain=plain)
    return None if wrong is None else unknown(ALIGNMENT, wrong.reason, wrong.detail)
