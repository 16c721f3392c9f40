"""The audit as one HTML page: evidence over requests, distances against the honest band, texts token by token.

This file chooses what is shown, as plain data; how, templates/audit.html of pages says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from logproof.pages import render
from logproof.verify.artifact.artifact import artifact_columns
from logproof.verify.artifact.replay_result import ReplayResult
from logproof.verify.audit.evidence import Audit, AuditSession, JudgedArtifact, changes, outdated, reason_groups
from logproof.verify.policy import Policy
from logproof.verify.stats import distance

MAX_TOKENS = 2000
"""Tokens of one text that are drawn."""
TOP = 3.0
"""Position score at which the colour is full."""

Shown = dict[str, object]
"""Plain data of a part of the page, by the names that the template uses."""


def page(
    audit: Audit, done: Sequence[JudgedArtifact], policy: Policy, texts: Mapping[int, str], before: Audit | None = None
) -> str:
    """The whole page. texts: token id -> text; an id without one is shown as a number. before: an earlier audit."""
    return render(
        "audit.html",
        title=f"Audit of {audit.provider}",
        provider=audit.provider,
        status=audit.session.status,
        headline=audit.headline,
        facts=list(_facts(audit, policy).items()),
        before=None if before is None else _since(before, audit),
        mean=_number(audit.mean_tz),
        evidence=_evidence(audit.session),
        requests=_requests(audit.session, policy),
        reasons=[msgspec.structs.asdict(group) for group in reason_groups(audit.session)],
        texts=[_text(v, policy, texts) for v in done],
    )


def _facts(audit: Audit, policy: Policy) -> dict[str, str]:
    holdout = list(policy.holdout.values())
    alarms, sequences = sum(h.alarms for h in holdout), sum(h.sequences for h in holdout)
    return {
        "claimed model": audit.model,
        "trusted engine": audit.trusted,
        "fingerprint": audit.fingerprint or "not reported",
        "time": f"{audit.started_at} to {audit.finished_at}",
        "policy": f"{policy.name} ({audit.policy_digest[:12]}), expires {policy.expires_at}",
        "target false-positive rate": f"{policy.level:g}",
        "measured on held-out honest sequences": f"{alarms} of {sequences}" if holdout else "not measured",
    }


def _since(before: Audit, audit: Audit) -> Shown:
    """What changed since an earlier audit, and whether that one still speaks about this provider."""
    stale = outdated(before, audit)
    return {
        "finished_at": before.finished_at,
        "status": before.session.status,
        "standing": "It is stale: what it rested on has changed."
        if stale
        else "It rests on the same model, policy and engines.",
        "mean": _number(before.mean_tz),
        "changes": changes(before, audit),
    }


def _evidence(session: AuditSession) -> Shown:
    """Log e-value over requests as points of a line, and the height at which the claim is rejected."""
    values = [0.0, *(s.log_e for s in session.steps)]
    bound = -math.log(session.level)
    high, low = max(bound * 1.2, *values), min(0.0, *values)
    width = max(1, len(values) - 1)

    def height(v: float) -> str:
        return f"{100 - 96 * (v - low) / (high - low):.1f}"

    return {
        "points": " ".join(f"{600 * i / width:.1f},{height(v)}" for i, v in enumerate(values)),
        "bound": height(bound),
        "words": f"log e-value {values[-1]:.2f} after {len(session.steps)} requests; rejected at {bound:.2f}",
    }


def _requests(session: AuditSession, policy: Policy) -> list[Shown]:
    return [
        {
            "prompt": s.prompt,
            "status": s.status,
            "level": s.level,
            "tokens": s.tokens,
            "distance": _number(s.tz),
            "band": _band(policy, s.tokens),
            "log_e": _number(s.log_e),
            "reasons": "; ".join(s.reasons),
        }
        for s in session.steps
    ]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _band(policy: Policy, tokens: int) -> str:
    """Where nine of ten honest distances of this length lie."""
    scores = policy.calibration("tz", tokens) if tokens else ()
    if not scores:
        return ""
    low, high = np.quantile(scores, [0.05, 0.95])
    return f"{low:.3g} to {high:.3g}"


def _text(judged: JudgedArtifact, policy: Policy, texts: Mapping[int, str]) -> Shown:
    ids = (judged.artifact.tokens.completion_ids or ())[:MAX_TOKENS]
    scores = _scores(judged, policy)
    return {
        "prompt": judged.prompt,
        "status": judged.verdict.status,
        "headline": judged.verdict.headline,
        "tokens": [_token(i, t, scores, texts) for i, t in enumerate(ids)],
    }


def _scores(verified: JudgedArtifact, policy: Policy) -> list[float]:
    """Position scores, empty where there was no replay of these tokens."""
    answer = verified.replay
    if not isinstance(answer, ReplayResult) or verified.artifact.positions is None:
        return []
    own = artifact_columns(verified.artifact)
    if not np.array_equal(own.sampled_ids, answer.columns.sampled_ids):
        return []
    found = distance.worst_positions(distance.pair(own, answer.columns), policy.sigma)
    return [float(v) for v in np.nan_to_num(found)]


def _token(i: int, token: int, scores: Sequence[float], texts: Mapping[int, str]) -> Shown:
    text, figures = texts.get(token) or f"[{token}]", f"token {i}: {token}"
    if i >= len(scores):
        return {"text": text, "figures": figures, "shade": None}
    shade = f"rgba(220,60,40,{min(1.0, scores[i] / TOP):.2f})"
    return {"text": text, "figures": f"{figures}, distance {scores[i]:.2f}", "shade": shade}
