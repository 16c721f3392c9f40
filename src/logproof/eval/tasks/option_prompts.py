"""The prompts of a PPL row: the context joined with each option, and what of the join belongs to the option."""

from __future__ import annotations

from collections.abc import Sequence

from logproof.eval.tasks.task import PplItem


def ppl_item(context: str, options: Sequence[str], gold: int, neutral: str | None = None) -> PplItem:
    """A PPL item by the rule for white space at the join.

    White space at the end of the context belongs to the options, so `Answer: ` + `Paris` and `Answer:` +
    ` Paris` are one item. Where neither side has any, one space joins them. Raises ValueError for an option
    without text, or an empty context.
    """
    kept = context.rstrip()
    gap = context[len(kept) :]
    texts = tuple(option.strip() for option in options)
    if not kept or not all(texts):
        raise ValueError("an empty context or option")
    joined = tuple((gap or _leading(option) or " ") + text for option, text in zip(options, texts, strict=True))
    return PplItem(kept, texts, joined, gold, neutral)


def _leading(option: str) -> str:
    return option[: len(option) - len(option.lstrip())]
