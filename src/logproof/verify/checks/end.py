"""S6: does the end of the completion fit the claim? Exact parts need no model; how likely an end was is reported.

An early stop on an unlikely end, and an end that was suppressed though likely, show in these chances. They reject
nothing: honest texts end on unlikely tokens too, and what they show is drawn tokens, which S3 and S4 judge.
Cannot see: a writer who stops early on a token that the model also finds likely to end on; the
text of a stop string where the trusted engine does not decode.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

import msgspec
import numpy as np

from logproof.verify.artifact.artifact import Artifact
from logproof.verify.artifact.columns import Columns, Floats, Mask
from logproof.verify.artifact.completion_text import CompletionText
from logproof.verify.artifact.request_body import EMPTY, protocol_values, read_stated
from logproof.verify.check_table import END
from logproof.verify.checks.case import NOTHING_KNOWN, RecordedCase, TrustedFacts
from logproof.verify.stats.drawable_tokens import support
from logproof.verify.stats.sampler import Sampler
from logproof.verify.verdict import Finding, passed, unknown

Kind = Literal["contradiction", "unknown"]


class EndFault(msgspec.Struct, frozen=True):
    """kind: contradiction (an honest record cannot have it) or unknown (evidence is missing). detail: in words."""

    kind: Kind
    detail: str


def end_faults(artifact: Artifact, facts: TrustedFacts = NOTHING_KNOWN) -> list[EndFault]:
    """All that is wrong or unknown about the end; empty where it is sound."""
    artifact = _measured(artifact, facts.eos_ids)
    ids = artifact.tokens.completion_ids
    if ids is None:
        return [EndFault("unknown", "no token ids")]
    faults = [*_count(artifact, len(ids)), *_inner(artifact, ids), *_reason(artifact, ids, facts.text)]
    return [*faults, *_not_requested(artifact, facts)]


def ending_ids(artifact: Artifact) -> frozenset[int] | None:
    """Ids that end this completion: the model's EOS (unless ignored) and the stop ids; None where unknown."""
    s = artifact.sampling
    if s.stop_token_ids is None or s.ignore_eos is None:
        return None
    if s.ignore_eos:
        return frozenset(s.stop_token_ids)
    if artifact.claim.model.eos_ids is None:
        return None
    return frozenset(artifact.claim.model.eos_ids) | frozenset(s.stop_token_ids)


def _count(artifact: Artifact, n: int) -> list[EndFault]:
    limit, finish = artifact.sampling.max_tokens, artifact.end.finish_reason
    if limit is None:
        return [EndFault("unknown", "max_tokens is unresolved")]
    if n > limit:
        return [EndFault("contradiction", f"{n} tokens, max_tokens is {limit}")]
    if finish == "length" and n < limit:
        return [EndFault("contradiction", f"finish is length after {n} tokens, max_tokens is {limit}")]
    least = artifact.sampling.min_tokens
    if least is not None and finish == "stop" and n < least:
        return [EndFault("contradiction", f"finish is stop after {n} tokens, min_tokens is {least}")]
    return []


def _inner(artifact: Artifact, ids: tuple[int, ...]) -> list[EndFault]:
    """No ending id before the last token; before min_tokens the engine forbids them anyway."""
    ends = ending_ids(artifact)
    if ends is None:
        return []
    at = next((i for i, t in enumerate(ids[:-1]) if t in ends), None)
    return (
        []
        if at is None
        else [EndFault("contradiction", f"token {at} ({ids[at]}) ends a completion, and {at + 1} follows")]
    )


def _reason(artifact: Artifact, ids: tuple[int, ...], text: CompletionText | None) -> list[EndFault]:
    finish, ends = artifact.end.finish_reason, ending_ids(artifact)
    if finish is None:
        return [EndFault("unknown", "no finish reason")]
    if finish == "length" and ends is not None and ids and ids[-1] in ends:
        return [EndFault("contradiction", f"finish is length, but the last token {ids[-1]} ends a completion")]
    if finish not in ("stop", "tool_calls", "length"):
        return [EndFault("unknown", f"finish is {finish}")]
    if finish == "length":
        return []
    return _stopped(artifact, ids, ends, text)


def _stopped(
    artifact: Artifact, ids: tuple[int, ...], ends: frozenset[int] | None, text: CompletionText | None
) -> list[EndFault]:
    """A stop needs an ending id last, or a stop string, which only the text shows: an executor that stops anywhere
    could say that one ended it."""
    stops = artifact.sampling.stop
    if stops is None or ends is None:
        return [EndFault("unknown", "what may end this completion is unresolved")]
    if ids and ids[-1] in ends:
        return []
    if stops and text is None:
        return [EndFault("unknown", "a stop string may have ended it, and the trusted engine did not make its text")]
    if stops and text is not None:
        early = bool(artifact.sampling.min_tokens)
        shown = any(s in text.whole and (early or s not in text.before) for s in stops)
        return [] if shown else [EndFault("unknown", "its last token completes no stop string in its text")]
    return [EndFault("contradiction", f"finish is {artifact.end.finish_reason}, but the last token ends nothing")]


def _not_requested(artifact: Artifact, facts: TrustedFacts) -> list[EndFault]:
    """What makes the end easier to explain, and stands in the record without having been requested.

    A limit explains an end by length, stop strings and ids one before EOS, and an EOS that is ignored explains that the
    text went on. The executor could invent each of them: what neither the request nor the protocol says shows nothing,
    unless the verifier states it.
    """
    stated, protocol = read_stated(artifact), protocol_values(artifact.claim.engine.name, artifact.request.path)
    ended = ("max_tokens",) if artifact.end.finish_reason == "length" else ()
    faults = []
    for leaf in ("stop", "stop_token_ids", "ignore_eos", *ended):
        recorded = getattr(artifact.sampling, leaf)
        requested = None if stated is None else getattr(stated.sampling, leaf)
        own = facts.own_record and artifact.sampling.sources.get(leaf) in ("operator", "generation_config")
        known = own or facts.server.stands_for(leaf, recorded) or recorded == protocol.get(leaf)
        if recorded not in (None, EMPTY.get(leaf), requested) and not (requested is None and known):
            faults.append(EndFault("unknown", f"{leaf} {recorded!r} is not what the request states"))
    return [*faults, *_claimed_eos(artifact, facts)]


def _claimed_eos(artifact: Artifact, facts: TrustedFacts) -> list[EndFault]:
    """An end by an id that only the record calls one: an executor that stops anywhere could claim its last token."""
    ids, stops = artifact.tokens.completion_ids, artifact.sampling.stop_token_ids
    if facts.eos_ids is not None or facts.own_record or artifact.end.finish_reason == "length" or not ids:
        return []
    if artifact.sampling.ignore_eos or ids[-1] in (stops or ()) or ids[-1] not in (artifact.claim.model.eos_ids or ()):
        return []
    return [EndFault("unknown", f"only the record says that {ids[-1]} ends a completion; the policy names no such id")]


def may_end_by_text(artifact: Artifact, facts: TrustedFacts) -> bool:
    """Whether only a stop string explains the end, so that its text is needed."""
    ids, ends = artifact.tokens.completion_ids, ending_ids(_measured(artifact, facts.eos_ids))
    stopped = artifact.end.finish_reason in ("stop", "tool_calls") and bool(artifact.sampling.stop)
    return stopped and ends is not None and bool(ids) and ids is not None and ids[-1] not in ends


class EndChances(msgspec.Struct, frozen=True, eq=False):
    """Chance at each of n positions that the draw there ends the completion, between bounds, 0..1.

    low, high: float64 [n]; one number where a row names every ending id. Where it names none, low is 0, and high is 1
    but at the last position. stopped: the last token is such an end; at all other positions the text went on.
    """

    low: Floats
    high: Floats
    stopped: bool

    @property
    def passed(self) -> Floats:
        """Least chance of an end where the text went on, float64."""
        return self.low[: len(self.low) - self.stopped]

    @property
    def numbers(self) -> dict[str, float]:
        """end_low, end_high: at the last position. passed: the likeliest end that was passed by. went_on: chance, at
        most, of passing all of them by."""
        numbers = {"end_low": float(self.low[-1]), "end_high": float(self.high[-1])}
        if len(self.passed):
            numbers |= {"passed": float(self.passed.max()), "went_on": float(np.prod(1.0 - self.passed))}
        return numbers

    @property
    def words(self) -> str:
        """The same in words; an end that was passed by is named from a chance of PASSED on."""
        what = "its last token had a chance of" if self.stopped else "at its last token an end had a chance of"
        words = f"{what} {_chance(self.low[-1], self.high[-1])}"
        if len(self.passed) and self.passed.max() >= PASSED:
            at = int(self.passed.argmax())
            words += f"; at token {at} one had {_chance(self.low[at], self.high[at])}, and the text went on"
            words += f" (past all of them with a chance of at most {self.numbers['went_on']:.2g})"
        return words


PASSED = 0.5
"""Chance of an end from which it is named that the text went on."""


NARROW = 0.01
"""Share of a chance by which its bounds may differ and still be given as one number."""


def _chance(low: float, high: float) -> str:
    if high - low <= NARROW * high:
        return f"{high:.2g}"
    return f"at most {high:.2g}" if low == 0.0 else f"{low:.2g} to {high:.2g}"


def end_chances(
    artifact: Artifact, columns: Columns, sampler: Sampler, vocab_size: int | None = None
) -> EndChances | None:
    """How likely an end was, by these rows under this sampler (greedy: under the rows themselves).

    vocab_size: as the verifier knows it. None where it is not known what ends a completion, or nothing does.
    """
    ends = ending_ids(artifact)
    if not ends or not len(columns):
        return None
    named: Mask = np.asarray(np.isin(columns.entries[0], list(ends)).any(axis=1), np.bool_)
    named[-1] = True
    low, high = np.zeros(len(columns)), np.ones(len(columns))
    drawn = Sampler(1.0) if sampler.greedy else sampler
    low[named], high[named] = _bounds(_rows(columns, named), ends, drawn, vocab_size)
    stopped = artifact.end.finish_reason != "length" and int(columns.sampled_ids[-1]) in ends
    return EndChances(low, high, stopped)


def _rows(columns: Columns, which: Mask) -> Columns:
    return Columns(
        columns.sampled_ids[which], columns.sampled_logprobs[which], columns.ids[which], columns.logprobs[which]
    )


def _bounds(columns: Columns, ends: Collection[int], sampler: Sampler, vocab_size: int | None) -> tuple[Floats, Floats]:
    kept = support(columns, sampler, vocab_size=vocab_size)
    here = np.isin(kept.ids, list(ends))
    unnamed = len(ends) - here.sum(axis=1)
    each = np.exp(columns.floor / sampler.temperature - kept.unlisted.shift)
    listed = np.where(here & ~kept.cut, kept.weights, 0.0).sum(axis=1)
    sure = np.where(here & kept.kept, kept.weights, 0.0).sum(axis=1)
    above = listed + np.minimum(unnamed * each, kept.unlisted.most)
    least, most = (0.0, 0.0) if sampler.plain else (kept.log_z_low, kept.log_z_high)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        high = np.where(above > 0.0, above / np.exp(least), 0.0)
        low = np.minimum(sure / np.exp(most), 1.0)
        return np.asarray(low, np.float64), np.asarray(np.minimum(high, 1.0), np.float64)


def check_end(case: RecordedCase) -> list[Finding]:
    """S6, with how likely an end was where the claimed sampler is known."""
    finding = end_finding(case.artifact, case.facts)
    if finding.outcome != "pass" or isinstance(case.sampler, str):
        return [finding]
    chances = end_chances(_measured(case.artifact, case.facts.eos_ids), case.columns, case.sampler, case.vocab_size)
    if chances is None:
        return [finding]
    detail = f"{finding.detail}; {chances.words}"
    return [msgspec.structs.replace(finding, detail=detail, n=len(chances.low), statistic=chances.numbers)]


def end_finding(artifact: Artifact, facts: TrustedFacts = NOTHING_KNOWN) -> Finding:
    """S6 without the chances. facts: measured ids that end a completion overrule the claim."""
    faults = end_faults(artifact, facts)
    wrong = [f.detail for f in faults if f.kind == "contradiction"]
    if wrong:
        return Finding(test=END.id, outcome="fail", reason="termination", detail="; ".join(wrong))
    if faults:
        return unknown(END, "end_unknown", "; ".join(f.detail for f in faults))
    return passed(END, "the end fits the claim")


def _measured(artifact: Artifact, eos_ids: tuple[int, ...] | None) -> Artifact:
    """The artifact as if it claimed these ids; itself where none were measured."""
    if eos_ids is None:
        return artifact
    model = msgspec.structs.replace(artifact.claim.model, eos_ids=eos_ids)
    return msgspec.structs.replace(artifact, claim=msgspec.structs.replace(artifact.claim, model=model))
