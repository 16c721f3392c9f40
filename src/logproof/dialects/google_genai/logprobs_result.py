"""Logprobs of a Gemini candidate: chosen tokens with the best at each step.

The chosen token may be missing from its step's best. What these logprobs are after is not documented, so their
meaning is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from logproof.dialects.common import logprobs
from logproof.errors import BadReply, MissingChannel
from logproof.ir.request import Request
from logproof.ir.response import Tokens, TopK

SUM_TOLERANCE = 1e-3
"""Most that the reported sum may differ from ours, in nats a token."""


class GenAIToken(msgspec.Struct, gc=False, omit_defaults=True, rename="camel"):
    """One token with its logprob."""

    log_probability: float | None = None
    token: str | None = None
    token_id: int | None = None


class Best(msgspec.Struct, gc=False, omit_defaults=True):
    candidates: list[GenAIToken] = []


class LogprobsResult(msgspec.Struct, gc=False, omit_defaults=True, rename="camel"):
    """Logprobs of one candidate, or of what one event adds to it."""

    chosen_candidates: list[GenAIToken] = []
    top_candidates: list[Best] = []
    log_probability_sum: float | None = None


def lift_logprobs(request: Request, found: LogprobsResult | None, path: str) -> Tokens | None:
    """The sampled channel, or None where it was not asked.

    Raises MissingChannel where it is absent; BadReply where steps and tokens differ in number, a step holds
    another number than was asked, a value is none, or the reported sum is not theirs.
    """
    width = request.scoring.sampled
    if width is None:
        return None
    if found is None or not found.chosen_candidates:
        raise MissingChannel("logprobs were asked and are absent", path=path, hint="a gateway of this wire drops them")
    chosen = found.chosen_candidates
    everything = [*chosen, *(s for best in found.top_candidates for s in best.candidates)]
    by_id = all(s.token_id is not None for s in everything)
    if not by_id and any(s.token is None for s in everything):
        raise BadReply("a scored token without id and text", path=path)
    values = logprobs.logprobs([s.log_probability for s in chosen], f"{path}/chosenCandidates", sentinel=False)
    _check_sum(found, float(values.sum()), path)
    texts = tuple(s.token for s in chosen)
    return Tokens(
        logprobs=values,
        meaning="unknown",
        ids=logprobs.ids([s.token_id or 0 for s in chosen], path) if by_id else None,
        texts=None if all(t is None for t in texts) else texts,
        top=_top(found, width, path, by_id=by_id) if width else None,
    )


def _check_sum(found: LogprobsResult, total: float, path: str) -> None:
    reported = found.log_probability_sum
    if reported is not None and abs(reported - total) > SUM_TOLERANCE * len(found.chosen_candidates):
        raise BadReply(f"the logprobs sum to {total:.4f}, the reply says {reported:.4f}", path=path)


def _top(found: LogprobsResult, width: int, path: str, *, by_id: bool) -> TopK:
    where = f"{path}/topCandidates"
    chosen = found.chosen_candidates
    logprobs.same_length(where, len(chosen), len(found.top_candidates), "chosen tokens")
    rows = []
    for i, (best, own) in enumerate(zip(found.top_candidates, chosen, strict=True)):
        if len(best.candidates) != width:
            raise BadReply(f"{len(best.candidates)} entries for a top {width}", path=f"{where}/{i}")
        known = {_key(s, by_id=by_id) for s in best.candidates}
        listed = best.candidates if _key(own, by_id=by_id) in known else [*best.candidates, own]
        rows.append(_row(listed, f"{where}/{i}", by_id=by_id))
    own_values = [(_key(s, by_id=by_id), s.log_probability or 0.0) for s in chosen]
    return logprobs.top_k(rows, width, own_values, where)


def _row(
    listed: Sequence[GenAIToken], path: str, *, by_id: bool
) -> tuple[list[int] | None, list[float], None, list[str] | None]:
    values = logprobs.logprobs([s.log_probability for s in listed], path, sentinel=False).tolist()
    ids = [s.token_id or 0 for s in listed]
    texts = [s.token for s in listed if s.token is not None]
    return ids if by_id else None, values, None, texts if len(texts) == len(listed) else None


def _key(scored: GenAIToken, *, by_id: bool) -> int | str:
    return (scored.token_id or 0) if by_id else (scored.token or "")
