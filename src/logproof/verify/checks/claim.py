"""The note on sampling that the request did not name."""

from __future__ import annotations

from logproof.verify.check_table import CLAIM
from logproof.verify.checks.case import RecordedCase
from logproof.verify.verdict import Finding


def check_claim(case: RecordedCase) -> list[Finding]:
    """A note on sampling that the request did not name: a false statement about the server's defaults is not seen."""
    sources = case.artifact.sampling.sources
    named = sorted(n for n, s in sources.items() if s in ("engine", "generation_config", "operator"))
    if not named:
        return []
    stated = ", ".join(f"{name} ({sources[name]})" for name in named)
    return [Finding(test=CLAIM.id, outcome="note", detail=f"not in the request, but stated: {stated}", n=len(named))]
