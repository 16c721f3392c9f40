"""The audit as one HTML page: evidence over requests, distances against the honest band, texts token by token. Pure.

Everything that comes from outside is escaped; the page loads nothing and runs no script.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from logproof.verify.artifact import artifact as art
from logproof.verify.artifact.replay_result import ReplayResult
from logproof.verify.audit.evidence import Audit, AuditSession, JudgedArtifact, changes, outdated
from logproof.verify.policy import Policy
from logproof.verify.stats import distance

MAX_TOKENS = 2000
"""Tokens of one text that are drawn."""
TOP = 3.0
"""Position score at which the colour is full."""

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1b1b;background:#fff}
table{border-collapse:collapse;width:100%;margin:1rem 0}
td,th{border-bottom:1px solid #ddd;padding:.3rem .5rem;text-align:left}
.valid{color:#0a6b2e}.invalid{color:#a40000}.inconclusive{color:#7a5a00}
.text{white-space:pre-wrap;border:1px solid #ddd;padding:.6rem;overflow-wrap:anywhere}
.text span{border-radius:2px}svg{width:100%;height:9rem;border:1px solid #ddd}small{color:#555}
@media(prefers-color-scheme:dark){body{color:#e6e6e6;background:#161616}.text,svg,td,th{border-color:#444}small{color:#aaa}
.valid{color:#5fd38d}.invalid{color:#ff7b7b}.inconclusive{color:#e3c567}}
"""


def page(
    audit: Audit, done: Sequence[JudgedArtifact], policy: Policy, texts: Mapping[int, str], before: Audit | None = None
) -> str:
    """The whole page. texts: token id -> text; an id without one is shown as a number. before: an earlier audit."""
    parts = [
        f"<h1>Audit of {escape(audit.provider)}</h1>",
        f"<p class='{audit.session.status}'><strong>{audit.session.status}</strong>: {escape(audit.headline)}</p>",
        _facts(audit, policy),
        "" if before is None else _since(before, audit),
        "<h2>Evidence against the claim</h2>",
        _evidence(audit.session),
        "<h2>Requests</h2>",
        _requests(audit.session, policy),
        "<h2>Texts</h2>",
        "<p><small>Colour: how far a position's logprobs lie from the trusted engine's.</small></p>",
        *(_text(v, policy, texts) for v in done),
    ]
    head = f"<meta charset='utf-8'><title>Audit of {escape(audit.provider)}</title><style>{STYLE}</style>"
    return f"<!doctype html><html lang='en'><head>{head}</head><body>{''.join(parts)}</body></html>\n"


def _facts(audit: Audit, policy: Policy) -> str:
    held = list(policy.holdout.values())
    alarms, sequences = sum(h.alarms for h in held), sum(h.sequences for h in held)
    rows = {
        "claimed model": audit.model,
        "trusted engine": audit.trusted,
        "fingerprint": audit.fingerprint or "not reported",
        "time": f"{audit.started_at} to {audit.finished_at}",
        "policy": f"{policy.name} ({audit.policy_digest[:12]}), expires {policy.expires_at}",
        "target false-positive rate": f"{policy.level:g}",
        "measured on held-out honest sequences": f"{alarms} of {sequences}" if held else "not measured",
    }
    cells = "".join(f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in rows.items())
    return f"<table>{cells}</table>"


def _since(before: Audit, audit: Audit) -> str:
    """What changed since an earlier audit, and whether that one still speaks about this provider."""
    differs, stale = changes(before, audit), outdated(before, audit)
    mean = f"{_number(before.mean_tz)} then, {_number(audit.mean_tz)} now"
    words = (
        "It is stale: what it rested on has changed." if stale else "It rests on the same model, policy and engines."
    )
    items = "".join(f"<li>{escape(line)}</li>" for line in differs) or "<li>nothing that matters</li>"
    return (
        f"<h2>Since the audit of {escape(before.finished_at)}</h2><p>That one was {before.session.status}. {words}</p>"
        f"<p>Mean distance: {mean}. Changed:</p><ul>{items}</ul>"
    )


def _evidence(session: AuditSession) -> str:
    """Log e-value over requests as a line, with the line at which the claim is rejected."""
    values = [0.0, *(s.log_e for s in session.steps)]
    line = -math.log(session.level)
    high, low = max(line * 1.2, *values), min(0.0, *values)
    width = max(1, len(values) - 1)

    def point(i: int, v: float) -> str:
        return f"{600 * i / width:.1f},{100 - 96 * (v - low) / (high - low):.1f}"

    path = " ".join(point(i, v) for i, v in enumerate(values))
    at = point(0, line).split(",")[1]
    told = f"log e-value {values[-1]:.2f} after {len(session.steps)} requests; rejected at {line:.2f}"
    return (
        f"<svg viewBox='0 0 600 104' preserveAspectRatio='none' role='img' aria-label='{told}'>"
        f"<line x1='0' x2='600' y1='{at}' y2='{at}' stroke='#c33' stroke-dasharray='6'/>"
        f"<polyline points='{path}' fill='none' stroke='#36c' stroke-width='2'/></svg><p><small>{told}</small></p>"
    )


def _requests(session: AuditSession, policy: Policy) -> str:
    rows = "".join(
        f"<tr><td>{escape(s.prompt)}</td><td class='{s.status}'>{s.status}</td><td>{escape(s.level)}</td>"
        f"<td>{s.tokens}</td><td>{_number(s.tz)}</td><td>{_band(policy, s.tokens)}</td><td>{_number(s.log_e)}</td>"
        f"<td>{escape('; '.join(s.reasons))}</td></tr>"
        for s in session.steps
    )
    names = ("prompt", "verdict", "level", "tokens", "distance tz", "honest 5-95 %", "log e", "reasons")
    return f"<table><tr>{''.join(f'<th>{n}</th>' for n in names)}</tr>{rows}</table>"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _band(policy: Policy, tokens: int) -> str:
    """Where nine of ten honest distances of this length lie."""
    scores = policy.calibration("tz", tokens) if tokens else ()
    if not scores:
        return ""
    low, high = np.quantile(scores, [0.05, 0.95])
    return f"{low:.3g} to {high:.3g}"


def _text(verified: JudgedArtifact, policy: Policy, texts: Mapping[int, str]) -> str:
    ids = (verified.artifact.tokens.completion_ids or ())[:MAX_TOKENS]
    scores = _scores(verified, policy)
    spans = "".join(_span(i, t, scores, texts) for i, t in enumerate(ids))
    status = verified.verdict.status
    title = f"<h3>{escape(verified.prompt)} <small class='{status}'>{status}</small></h3>"
    return f"{title}<p><small>{escape(verified.verdict.headline)}</small></p><div class='text'>{spans}</div>"


def _scores(verified: JudgedArtifact, policy: Policy) -> list[float]:
    """Position scores, empty where there was no replay of these tokens."""
    answer = verified.replay
    if not isinstance(answer, ReplayResult) or verified.artifact.positions is None:
        return []
    own = art.columns(verified.artifact)
    if not np.array_equal(own.sampled_ids, answer.columns.sampled_ids):
        return []
    found = distance.worst_positions(distance.pair(own, answer.columns), policy.sigma)
    return [float(v) for v in np.nan_to_num(found)]


def _span(i: int, token: int, scores: Sequence[float], texts: Mapping[int, str]) -> str:
    shown = escape(texts.get(token) or f"[{token}]")
    if i >= len(scores):
        return f"<span title='token {i}: {token}'>{shown}</span>"
    alpha = min(1.0, scores[i] / TOP)
    return (
        f"<span title='token {i}: {token}, distance {scores[i]:.2f}' style='background:rgba(220,60,40,{alpha:.2f})'>"
        f"{shown}</span>"
    )
