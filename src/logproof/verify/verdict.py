"""The verdict: valid, invalid or inconclusive, with reasons in words, and first of all what was not shown.

A verdict is made of findings, one a test. Rules:
* one failed test makes it invalid; an exception never becomes a finding;
* it is valid only where the findings reach the level that the policy requires; nothing passes by default;
* everything else is inconclusive, with each missing thing named.
Levels: `distribution` (the recorded logprobs are the claimed model's; says nothing about who wrote the text, nor about
whether the prompt was the requester's), `sampled` (the prompt is the one that the requester's own request makes, and
the tokens are plausible draws), `replayed` (the tokens are the draws, under a seed that the executor did not choose, or
the greedy choice).
Exit codes: 0 valid, 1 invalid, 2 inconclusive.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from logproof.verify.artifact.artifact import Record
from logproof.verify.check_table import (
    CHECKS,
    DISTRIBUTION,
    END,
    GREEDY,
    POLICY,
    PROMPT,
    REQUEST,
    REQUIREMENTS,
    SAMPLING,
    SEED,
    SEED_ORIGIN,
    SELF_REPLAY,
    STRUCTURE,
    Check,
)

Status = Literal["valid", "invalid", "inconclusive"]
Outcome = Literal["pass", "fail", "unknown", "note"]
EXIT_CODES: dict[Status, int] = {"valid": 0, "invalid": 1, "inconclusive": 2}
LEVELS = ("none", "distribution", "sampled", "replayed")

Reason = Literal[
    "malformed",
    "unreadable",
    "key",
    "hash_mismatch",
    "token_out_of_range",
    "inconsistent_usage",
    "vocabulary",
    "vocabulary_unknown",
    "rows_short",
    "self_replay",
    "distribution",
    "seed",
    "sampling",
    "termination",
    "no_token_ids",
    "no_logprobs",
    "mode_unknown",
    "modes_differ",
    "sampler_unknown",
    "low_entropy",
    "too_few_tokens",
    "seed_unbound",
    "profile_uncalibrated",
    "engine_error",
    "engine_cannot_replay",
    "replay_not_enforced",
    "top_list_spoiled",
    "model_identity",
    "stale",
    "not_replayed",
    "end_unknown",
    "too_good",
    "lattice",
    "kind",
    "seed_missing",
    "executor_uncalibrated",
    "sampling_uncalibrated",
    "number_format",
    "requirements_missing",
    "engines_differ",
    "request",
    "request_unclear",
    "prompt",
    "prompt_unmade",
    "request_unknown",
]

WORDS: dict[str, str] = {
    "malformed": "the artifact breaks its own rules",
    "unreadable": "it is no artifact",
    "key": "the record is not signed by a key that is required",
    "hash_mismatch": "the seal does not fit the content",
    "token_out_of_range": "a token id is outside the model's vocabulary",
    "inconsistent_usage": "the reported counts are not the recorded ones",
    "vocabulary": "the claimed vocabulary is not the trusted model's",
    "vocabulary_unknown": "the size of the vocabulary is not known but from the record",
    "rows_short": "rows are shorter than asked, and no claimed cut explains it",
    "self_replay": "the recorded logprobs and seed do not give the recorded tokens",
    "distribution": "not the claimed model on a machine like those calibrated",
    "seed": "the claimed model and seed do not give the recorded tokens",
    "sampling": "the tokens are not plausible draws under the claimed sampling",
    "termination": "the completion cannot have ended as claimed",
    "no_token_ids": "the artifact holds no token ids",
    "no_logprobs": "the artifact holds no logprobs",
    "mode_unknown": "it is not known whether the logprobs are raw or processed",
    "modes_differ": "artifact and replay report different kinds of logprobs",
    "sampler_unknown": "the draw cannot be repeated from what is recorded",
    "low_entropy": "the text was too certain to tell one sampler from another",
    "too_few_tokens": "there are too few tokens to tell",
    "seed_unbound": "the executor may have chosen the seed",
    "profile_uncalibrated": "no honest noise was measured for this case",
    "engine_error": "the trusted engine failed",
    "engine_cannot_replay": "the trusted engine refused a sound artifact",
    "replay_not_enforced": "the trusted engine did not emit the recorded tokens",
    "top_list_spoiled": "another request on the engine spoiled the lists of tokens",
    "model_identity": "artifact and policy are about different models",
    "stale": "the policy has expired or the endpoint changed",
    "not_replayed": "no replay was made",
    "end_unknown": "how the completion ended is not known",
    "too_good": "artifact and replay agree to the last bit",
    "lattice": "the rounding of the logprobs does not fit the claim",
    "kind": "the logprobs are not of the kind that is stated",
    "seed_missing": "the seed that was asked for is not in the record, or binds nobody",
    "executor_uncalibrated": "the record claims another executor than the policy requires",
    "sampling_uncalibrated": "the policy saw no honest records with this sampling",
    "number_format": "the logprobs have another number format than the policy requires",
    "requirements_missing": "the policy does not say what a record must have",
    "engines_differ": "one trusted engine rejects the record, the second does not",
    "request": "the record is not of the request that stands in it",
    "request_unclear": "the record does not show that it is what was requested",
    "prompt": "the recorded prompt is not the one that was requested",
    "prompt_unmade": "the requested prompt is not known in ids",
    "request_unknown": "the request is only the record's word",
}

NOT_SHOWN = {
    "none": "Not shown: that the claimed model saw or wrote this text.",
    "distribution": "Not shown: who wrote the text; a cheaper model may have, with the claimed one scoring it.",
    "sampled": "Not shown: that these tokens are the draws of the claimed seed; close imitations pass.",
    "replayed": "Not shown: on what hardware it ran, who else saw the data, or anything about other requests.",
}


UNVOUCHED: dict[str | None, str] = {
    "request_unknown": "Not shown: that anybody requested this; the request is only the record's word.",
    "prompt_unmade": "Not shown: that the requested prompt was run; its ids could not be made.",
}
"""What the first line says before all else where the prompt is not known to be the requester's, by reason."""


class Finding(Record, frozen=True, kw_only=True):
    """What one check found.

    test: its id in check_table.py. reason: set unless it passed. n: positions used. blind: what it cannot see.
    p: p-value. log_e: log e-value. statistic: what was measured, by name, nats unless the name says otherwise.
    Raises ValueError for a test that is not in the table.
    """

    test: str
    outcome: Outcome
    detail: str
    reason: Reason | None = None
    n: int = 0
    p: float | None = None
    log_e: float | None = None
    statistic: dict[str, float] = msgspec.field(default_factory=dict)
    blind: str = ""

    def __post_init__(self) -> None:
        if self.test not in CHECKS:
            raise ValueError(f"no check is called {self.test!r}")


def passed(check: Check, detail: str, n: int = 0, statistic: dict[str, float] | None = None) -> Finding:
    """The finding of a check that passed, with what it cannot see."""
    return Finding(test=check.id, outcome="pass", detail=detail, n=n, statistic=statistic or {}, blind=check.blind)


def unknown(
    check: Check, reason: Reason, detail: str, n: int = 0, statistic: dict[str, float] | None = None
) -> Finding:
    """The finding of a check that lacks the evidence to say anything."""
    return Finding(test=check.id, outcome="unknown", reason=reason, detail=detail, n=n, statistic=statistic or {})


def failed_if(failed: bool, finding: Finding, reason: Reason) -> Finding:
    """The finding, failed for this reason where `failed` says so."""
    return msgspec.structs.replace(finding, outcome="fail", reason=reason) if failed else finding


class Context(Record, frozen=True, kw_only=True):
    """Under what the verdict was reached. A change of any of these makes it stale."""

    time: str
    artifact_digest: str
    model: str
    policy_digest: str | None = None
    endpoint: str | None = None
    engine: str | None = None
    version: str | None = None
    fingerprint: str | None = None
    artifact_fingerprint: str | None = None
    mode: str | None = None
    method: str | None = None
    method_reason: str | None = None
    noise_floor: float | None = None
    false_positive_target: float | None = None
    false_positive_measured: tuple[int, int] | None = None


class Verdict(Record, frozen=True, kw_only=True):
    """status, the level reached, the first line, all findings, and the accumulated log e-value of the request."""

    status: Status
    level: str
    headline: str
    reasons: tuple[str, ...]
    findings: tuple[Finding, ...]
    context: Context
    log_e: float = 0.0

    @property
    def exit_code(self) -> int:
        """0 valid, 1 invalid, 2 inconclusive."""
        return EXIT_CODES[self.status]


def decide(
    findings: Sequence[Finding], context: Context, require: str = "sampled", log_e: float = 0.0, machines: str = ""
) -> Verdict:
    """The verdict that these findings make. require: least level that counts as valid. machines: that calibration saw,
    in words."""
    failed = [f for f in findings if f.outcome == "fail"]
    missing = [f for f in findings if f.outcome == "unknown"]
    level = "none" if failed else reached(findings)
    enough = LEVELS.index(level) >= LEVELS.index(require)
    status: Status = "invalid" if failed else "valid" if enough and level != "none" else "inconclusive"
    speaking = failed or ([] if status == "valid" else missing)
    reasons = tuple(f"{WORDS[f.reason or 'not_replayed']}: {f.detail}" for f in speaking)
    if status == "inconclusive" and not reasons:
        reasons = (f"reached level {level}, {require} is required",)
    return Verdict(
        status=status,
        level=level,
        headline=_headline(level, failed, missing, machines),
        reasons=reasons,
        findings=tuple(findings),
        context=context,
        log_e=log_e,
    )


def _headline(level: str, failed: Sequence[Finding], missing: Sequence[Finding], machines: str) -> str:
    """The first line: what is shown against the record, else what is not shown; an unvouched request comes first."""
    if failed:
        reason = failed[0].reason or "malformed"
        names = f" ({machines})" if machines and reason == "distribution" else ""
        return f"Shown: {WORDS[reason]}{names}."
    unvouched = [UNVOUCHED[f.reason] for f in missing if f.reason in UNVOUCHED]
    return " ".join([*unvouched, NOT_SHOWN[level]])


GROUPS = (
    ("distribution", ((STRUCTURE,), (END,), (POLICY,), (DISTRIBUTION,))),
    ("sampled", ((REQUEST,), (PROMPT,), (REQUIREMENTS,), (SAMPLING, GREEDY))),
    ("replayed", ((SEED, GREEDY), (SELF_REPLAY,), (SEED_ORIGIN, GREEDY))),
)
"""For each level the checks it adds: of every inner group at least one must have passed."""


def reached(findings: Sequence[Finding]) -> str:
    """The highest level whose tests, and those of all levels below it, passed."""
    good = {f.test for f in findings if f.outcome == "pass"}
    level = "none"
    for name, groups in GROUPS:
        if not all(any(check.id in good for check in group) for group in groups):
            break
        level = name
    return level


def table(verdicts: Sequence[Verdict]) -> list[tuple[str, str, str, str]]:
    """(artifact digest, status, level, first reason or headline) a row."""
    return [
        (v.context.artifact_digest[:12], v.status, v.level, v.reasons[0] if v.reasons else v.headline) for v in verdicts
    ]


def exit_code(statuses: Iterable[Status]) -> int:
    """Of several: 1 if any is invalid, else 2 if any is inconclusive or there is none, else 0."""
    codes = {EXIT_CODES[s] for s in statuses}
    return 1 if 1 in codes else 0 if codes == {0} else 2


def encode(verdict: Verdict) -> bytes:
    """The verdict as one line of JSON."""
    return msgspec.json.encode(verdict)
