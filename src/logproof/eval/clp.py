"""CLP scoring: the logprob of each answer label as the next token; the best label is the answer.

Labels are exact tokens: ` A` behind `Answer:` and nothing else, so ` A`, `A` and a tab before it are different
tokens and never summed or exchanged. Exact scores by label id are read where the wire gives them; otherwise a
top-k list, in which a missing label fails the sample. A tie goes to the label that stands first, and is counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from logproof.errors import BadReply, MissingChannel
from logproof.ir.response import Choice, TopK

Label = int | str


def from_labels(choice: Choice, label_ids: Sequence[int]) -> list[float]:
    """Logprobs of the labels at the first sampled position, by exact label scores.

    Raises MissingChannel where they are absent or of other ids, BadReply for masked ones.
    """
    labels = choice.labels
    if labels is None or len(labels.logprobs) == 0:
        raise MissingChannel("label scores were asked and are absent")
    if labels.ids.tolist() != list(label_ids):
        raise MissingChannel(f"label scores of ids {labels.ids.tolist()}, asked were {list(label_ids)}")
    _refuse_masked(labels.meaning)
    return _checked(labels.logprobs[0].tolist())


def from_top(choice: Choice, names: Sequence[str], label_ids: Sequence[int] | None) -> list[float]:
    """Logprobs of the labels at the first sampled position, out of the top-k list.

    names: label texts with their leading space. label_ids: their ids, None where unknown; ids are read where
    the list has them. Raises MissingChannel naming every label that is not in the list.
    """
    tokens = choice.tokens
    if tokens is None or tokens.top is None or len(tokens) == 0:
        raise MissingChannel("a top-k list was asked and is absent")
    _refuse_masked(tokens.meaning)
    found = _entries(tokens.top, label_ids)
    keys: Sequence[Label] = label_ids if tokens.top.ids is not None and label_ids is not None else names
    missing = [name.strip() for name, key in zip(names, keys, strict=True) if key not in found]
    if missing:
        width = tokens.top.span(0).stop - tokens.top.span(0).start
        raise MissingChannel(
            f"options {', '.join(missing)} are not in the top {width}",
            hint="use a dialect with label scores, or a wider --top-k",
        )
    return _checked([found[key] for key in keys])


def label_mass(logprobs: Sequence[float]) -> float:
    """Probability that the next token is one of the labels."""
    return math.fsum(math.exp(value) for value in logprobs)


def _entries(top: TopK, label_ids: Sequence[int] | None) -> dict[Label, float]:
    if top.ids is not None and label_ids is not None:
        return {**top.by_id(0)}
    try:
        return {**top.by_text(0)}
    except ValueError as error:
        raise BadReply(f"labels cannot be read by text: {error}") from None


def _refuse_masked(meaning: str) -> None:
    if meaning == "constrained":
        raise BadReply("these logprobs are renormalised over a grammar, not the model's own")


def _checked(values: list[float]) -> list[float]:
    if any(math.isnan(v) for v in values):
        raise BadReply("a label without a logprob")
    return values
