"""CLP scoring: the logprob of each answer label as the next token; the best label is the answer.

Labels are exact tokens: ` A` behind `Answer:` and nothing else, so ` A`, `A` and a tab before it are different
tokens and never summed or exchanged. Exact scores by label id are read where the wire gives them; otherwise a
top-k list, in which a missing label fails the sample. A tie goes to the label that stands first, and is counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

from logproof.errors import BadReply, MissingChannel
from logproof.eval.score.masked import refuse_masked
from logproof.ir.response import Choice

K = TypeVar("K", int, str)


def from_labels(choice: Choice, label_ids: Sequence[int]) -> list[float]:
    """Logprobs of the labels at the first sampled position, by exact label scores.

    Raises MissingChannel where they are absent or of other ids, BadReply for masked ones.
    """
    labels = choice.labels
    if labels is None or len(labels.logprobs) == 0:
        raise MissingChannel("label scores were asked and are absent")
    if labels.ids.tolist() != list(label_ids):
        raise MissingChannel(f"label scores of ids {labels.ids.tolist()}, asked were {list(label_ids)}")
    refuse_masked(labels.meaning)
    return _checked(labels.logprobs[0].tolist())


def from_top(choice: Choice, names: Sequence[str], label_ids: Sequence[int] | None) -> list[float]:
    """Logprobs of the labels at the first sampled position, out of the top-k list.

    names: label texts with their leading space. label_ids: their ids, None where unknown; ids are read where
    the list has them. Raises MissingChannel naming every label that is not in the list.
    """
    tokens = choice.tokens
    if tokens is None or tokens.top is None or len(tokens) == 0:
        raise MissingChannel("a top-k list was asked and is absent")
    refuse_masked(tokens.meaning)
    top = tokens.top
    if top.ids is not None and label_ids is not None:
        return _pick(top.by_id(0), label_ids, names)
    try:
        return _pick(top.by_text(0), names, names)
    except ValueError as error:
        raise BadReply(f"labels cannot be read by text: {error}") from None


def label_mass(logprobs: Sequence[float]) -> float:
    """Probability that the next token is one of the labels."""
    return math.fsum(math.exp(value) for value in logprobs)


def _pick(logprobs: Mapping[K, float], keys: Sequence[K], names: Sequence[str]) -> list[float]:
    missing = [name.strip() for name, key in zip(names, keys, strict=True) if key not in logprobs]
    if missing:
        raise MissingChannel(
            f"options {', '.join(missing)} are not in the top {len(logprobs)}",
            hint="use a dialect with label scores, or a wider --top-k",
        )
    return _checked([logprobs[key] for key in keys])


def _checked(values: list[float]) -> list[float]:
    if any(math.isnan(v) for v in values):
        raise BadReply("a label without a logprob")
    return values
