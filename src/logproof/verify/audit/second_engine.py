"""A second trusted engine, asked before a statistical rejection counts: do both reject the record?

What an honest machine of another kind does to the numbers looks like another model to one engine. A test that is exact
on the record itself needs no second engine.
"""

from __future__ import annotations

from msgspec.structs import replace

from logproof.client.connect import Connection
from logproof.verify.artifact.artifact import Artifact
from logproof.verify.artifact.known_request import KnownRequest
from logproof.verify.audit.verify import verify
from logproof.verify.check_table import DISTRIBUTION, GREEDY, SAMPLING, SEED
from logproof.verify.policy import Policy
from logproof.verify.replay.replay_plan import MethodChoice
from logproof.verify.verdict import Finding, Verdict, decide

STATISTICAL = frozenset(check.id for check in (DISTRIBUTION, SEED, GREEDY, SAMPLING))
"""Checks whose failure rests on a trusted engine's numbers."""


async def with_second(
    second: Connection,
    artifact: Artifact,
    first: Verdict,
    policy: Policy,
    method: MethodChoice = "auto",
    known: KnownRequest | None = None,
) -> Verdict:
    """The verdict of both engines on a record; that of the first where it does not speak against the record.

    Raises as `verify`.
    """
    failed = {f.test for f in first.findings if f.outcome == "fail"}
    if not failed <= STATISTICAL or (not failed and first.log_e <= 0.0):
        return first
    _, other = await verify(second, artifact, policy, method, known=known)
    return of_both(first, other, second.endpoint.display)


def of_both(first: Verdict, second: Verdict, endpoint: str) -> Verdict:
    """Invalid only if both are. The evidence is the lesser of both, which is an e-value too.

    endpoint: of the second engine, for the reason.
    """
    log_e = min(first.log_e, second.log_e)
    if first.status != "invalid" or second.status == "invalid":
        return replace(first, log_e=log_e)
    findings = [_doubted(f, second, endpoint) for f in first.findings]
    # No record with a doubted test reaches this level, so that none is valid on the word of one engine.
    return decide(findings, first.context, "replayed", log_e)


def _doubted(finding: Finding, second: Verdict, endpoint: str) -> Finding:
    if finding.outcome != "fail":
        return finding
    why = f" ({second.reasons[0]})" if second.reasons else ""
    detail = f"{finding.detail}; on {endpoint} the record is {second.status}{why}"
    return replace(finding, outcome="unknown", reason="engines_differ", detail=detail)
