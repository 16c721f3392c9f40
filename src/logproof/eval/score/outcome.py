"""Turn the replies of one item into its outcome, alike for live and for stored replies. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from logproof.dialects.empty_replies import lost_texts
from logproof.errors import BadReply
from logproof.eval.plan.method import TaskPlan, neutral_prompts, prompts
from logproof.eval.score import answers, labels, option_scores
from logproof.eval.score.option_span import Span, span_by_ids, span_by_texts
from logproof.eval.score.prompt_beginning import check_bos, doubled_start
from logproof.eval.tasks.task import ClpItem, GenItem, Item, PplItem
from logproof.ir.response import Choice, Response, Tokens

Replies = Mapping[str, Response]
Flag = str


class Outcome(msgspec.Struct, frozen=True):
    """One scored sample.

    scores: metric -> 1.0 or 0.0, or another finite figure. output: what the scores came from, JSON values; a
    sum of minus infinity is null there. flags: `tied`, `all_equal`, `all_zero`, `empty`, `truncated`,
    `doubled_start`, which the report counts and the run's health is judged by.
    """

    scores: dict[str, float]
    gold: object
    output: dict[str, object]
    flags: tuple[Flag, ...] = ()


class Contexts(msgspec.Struct, frozen=True):
    """What is known of where options begin: ids of the contexts alone, where a tokenizer is known, or spans
    that an earlier scoring of the same replies found."""

    context: tuple[int, ...] | None = None
    neutral: tuple[int, ...] | None = None
    span: Span | None = None
    neutral_span: Span | None = None


def score(item: Item, plan: TaskPlan, replies: Replies, contexts: Contexts) -> Outcome:
    """The outcome of an item. Raises BadReply kinds for replies that must not become a number."""
    if plan.settings.bos is not None:
        for part, reply in replies.items():
            check_bos(plan.settings.bos, part, reply)
    outcome = _scored(item, plan, replies, contexts)
    if any(map(doubled_start, replies.values())):
        return msgspec.structs.replace(outcome, flags=(*outcome.flags, "doubled_start"))
    return outcome


def _scored(item: Item, plan: TaskPlan, replies: Replies, contexts: Contexts) -> Outcome:
    if isinstance(item, PplItem):
        return _ppl(item, replies, contexts)
    if isinstance(item, ClpItem):
        return _clp(item, plan, replies["labels"])
    return _gen(item, replies["text"])


def _ppl(item: PplItem, replies: Replies, contexts: Contexts) -> Outcome:
    prompt_tokens = _prompt_tokens(replies, "option", len(item.options))
    place = contexts.span or _place(item.context, prompts(item), prompt_tokens, contexts.context)
    uncond, neutral_place = _neutral(item, replies, contexts)
    options = [
        option_scores.option_score(text, tokens, place.start, neutral)
        for text, tokens, neutral in zip(item.options, prompt_tokens, uncond, strict=True)
    ]
    values = option_scores.metric_values(options)
    ranked = {metric: option_scores.rank(column) for metric, column in values.items()}
    totals = [o.total for o in options]
    output: dict[str, object] = {
        "chosen": {metric: r.best for metric, r in ranked.items()},
        "tied": [metric for metric, r in ranked.items() if r.tied],
        "sums": _finite(totals),
        "tokens": [o.tokens for o in options],
        "span": place,
        "context_chars": len(item.context),
    }
    if neutral_place is not None and item.neutral is not None:
        neutral = {"span": neutral_place, "sums": _finite(uncond), "context_chars": len(item.neutral)}
        output["neutral"] = neutral
    scores = {metric: float(r.best == item.gold) for metric, r in ranked.items()}
    return Outcome(scores, item.gold, output, _option_flags(totals, ranked["acc"].tied))


def _prompt_tokens(replies: Replies, part: str, count: int) -> list[Tokens]:
    tokens = [replies[f"{part} {i}"].prompt for i in range(count)]
    whole = [t for t in tokens if t is not None]
    if len(whole) != count:
        raise BadReply("a reply without its prompt scores")
    return whole


def _place(context: str, texts: Sequence[str], prompt_tokens: Sequence[Tokens], ids: tuple[int, ...] | None) -> Span:
    columns = [t.ids for t in prompt_tokens if t.ids is not None]
    if ids is not None and len(columns) == len(prompt_tokens):
        return span_by_ids(ids, columns)
    return span_by_texts(context, texts, [t.texts or () for t in prompt_tokens])


def _neutral(item: PplItem, replies: Replies, contexts: Contexts) -> tuple[Sequence[float | None], Span | None]:
    if "neutral 0" not in replies or item.neutral is None:
        return [None] * len(item.options), None
    prompt_tokens = _prompt_tokens(replies, "neutral", len(item.options))
    place = contexts.neutral_span or _place(item.neutral, neutral_prompts(item), prompt_tokens, contexts.neutral)
    return [option_scores.span_sum(tokens, place.start) for tokens in prompt_tokens], place


def _clp(item: ClpItem, plan: TaskPlan, reply: Response) -> Outcome:
    choice = reply.choices[0]
    ids = [plan.label_ids[label] for label in item.labels] if plan.label_ids else None
    if plan.method.name == "label_scores" and ids is not None:
        values = labels.from_labels(choice, ids)
    else:
        values = labels.from_top(choice, item.labels, ids)
    ranked = option_scores.rank(values)
    scores = {"acc": float(ranked.best == item.gold), "label_mass": labels.label_mass(values)}
    output: dict[str, object] = {
        "chosen": {"acc": ranked.best},
        "tied": ["acc"] if ranked.tied else [],
        "labels": dict(zip(item.labels, _finite(values), strict=True)),
        "label_ids": ids,
    }
    return Outcome(scores, item.gold, output, _option_flags(values, ranked.tied))


def _gen(item: GenItem, reply: Response) -> Outcome:
    choice = reply.choices[0]
    lost = lost_texts(reply)
    if lost:
        raise BadReply(f"{lost[0]}: the server lost it, and an empty answer it is not")
    extracted = {name: extract(choice.text) for name, extract in answers.EXTRACTORS.items()}
    scores = {f"exact_{name}": float(answers.equal(number, item.gold)) for name, number in extracted.items()}
    output: dict[str, object] = {
        "extracted": extracted,
        "finish": choice.finish.reason,
        "matched": choice.finish.matched,
        "stop": list(item.stop),
        "tokens": reply.usage.completion,
    }
    return Outcome(scores, item.gold, output, _text_flags(choice))


def _text_flags(choice: Choice) -> tuple[Flag, ...]:
    flags = []
    if not choice.text.strip():
        flags.append("empty")
    if choice.finish.reason == "length":
        flags.append("truncated")
    return tuple(flags)


def _option_flags(values: Sequence[float], tied: bool) -> tuple[Flag, ...]:
    flags = ["tied"] if tied else []
    if len(set(values)) == 1:
        flags.append("all_equal")
    if not any(values):
        flags.append("all_zero")
    return tuple(flags)


def _finite(values: Sequence[float | None]) -> list[float | None]:
    """JSON has no infinity: null stands for an impossible option."""
    return [v if v is not None and math.isfinite(v) else None for v in values]
