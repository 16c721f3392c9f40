"""PPL scoring: an option's logprob is the sum over its span; the best option is the answer.

Metrics, each over the sum S of an option (natural log):
    acc          S
    acc_char     S / characters of the option      acc_byte   S / its UTF-8 bytes
    acc_token    S / tokens of the span            acc_uncond S(option | context) - S(option | neutral context)
Characters and bytes are those of the option as the row writes it: the white space that joins it to the context
is scored but not counted. A tie goes to the option that stands first, and is counted. A token that is impossible
under the model makes its sum minus infinity; a row whose options are all impossible cannot be ranked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from logproof.errors import BadReply
from logproof.eval.score.masked import refuse_masked
from logproof.ir.response import Floats, Tokens


class OptionScore(msgspec.Struct, frozen=True):
    """One option. total: sum of its logprobs, -inf possible. tokens: of its span. uncond: its neutral sum."""

    total: float
    tokens: int
    chars: int
    bytes: int
    uncond: float | None = None


class Ranking(msgspec.Struct, frozen=True):
    """The choice of one metric. best: index of the chosen option. tied: another option has the same value."""

    best: int
    tied: bool


def span_sum(tokens: Tokens, start: int) -> float:
    """Sum of the logprobs from `start` on, correctly rounded; -inf where one of them is.

    Raises BadReply for an empty span, an unscored position in it, or logprobs of a masked distribution.
    """
    refuse_masked(tokens.meaning)
    span = tokens.logprobs[start:]
    if len(span) == 0:
        raise BadReply(f"no scored token from position {start} on")
    if np.isnan(span).any():
        raise BadReply(f"an unscored position in the span from {start} on")
    return math.fsum(span.tolist()) if np.isfinite(span).all() else -math.inf


def option_score(text: str, tokens: Tokens, start: int, uncond: float | None = None) -> OptionScore:
    """The score of one option. text: as the row writes it. Raises as `span_sum`."""
    total = span_sum(tokens, start)
    return OptionScore(total, len(tokens) - start, len(text), len(text.encode()), uncond)


def metric_values(options: Sequence[OptionScore]) -> dict[str, list[float]]:
    """{metric: value of each option}; acc_uncond only where every option has its neutral sum, and a finite one."""
    values = {
        "acc": [o.total for o in options],
        "acc_char": [o.total / o.chars for o in options],
        "acc_byte": [o.total / o.bytes for o in options],
        "acc_token": [o.total / o.tokens for o in options],
    }
    neutral = [o.uncond for o in options if o.uncond is not None and math.isfinite(o.uncond)]
    if len(neutral) == len(options):
        values["acc_uncond"] = [o.total - u for o, u in zip(options, neutral, strict=True)]
    return values


def rank(values: Sequence[float]) -> Ranking:
    """The first of the greatest values. Raises BadReply where none is finite."""
    best = max(values)
    if not math.isfinite(best):
        raise BadReply("every option is impossible under the model: they cannot be ranked")
    return Ranking(values.index(best), values.count(best) > 1)


def perplexity(logprobs: Floats) -> float:
    """exp of the mean negative logprob over the scored positions of a text; inf where a token is impossible.

    The first token of a text has nothing before it: its NaN is not counted. Raises BadReply for any other NaN,
    and where no token is scored.
    """
    scored = logprobs[1:] if len(logprobs) and math.isnan(float(logprobs[0])) else logprobs
    if len(scored) == 0:
        raise BadReply("no scored token: perplexity is undefined")
    if np.isnan(scored).any():
        raise BadReply("an unscored position inside the text")
    return perplexity_of(math.fsum(scored.tolist()) if np.isfinite(scored).all() else -math.inf, len(scored))


def perplexity_of(total: float, tokens: int) -> float:
    """exp(-total / tokens), inf where that is too large for a float."""
    try:
        return math.exp(-total / tokens)
    except OverflowError:
        return math.inf
