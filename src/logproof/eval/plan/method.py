"""Ways: how a kind of task is asked of one dialect at one endpoint, and the requests of one item.

    ppl   prompt scores of every option
    clp   exact label scores, else the top-k list at the first position
    gen   text with the logprobs of its tokens, else text alone; drawn by seed, else without one

The first way that the dialect lowers without a refusal is taken, before the run starts and for all of its rows,
and is part of the run's identity. Texts go out as text prompts; where a wire takes only chat, generation goes
out as one user message.

Labels are tokens behind `Answer:`. A chat wire asks for them only where it continues an assistant's turn: the
question is the user's message, `Answer:` the beginning of the assistant's. Behind a chat template's own header
the model writes `A`, not ` A`, so a wire without prefill cannot be asked for the same tokens and is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from logproof.dialects.capabilities import missing, plan
from logproof.dialects.dialect import Dialect
from logproof.dialects.lower import lower
from logproof.errors import DatasetError, PlanRefused, RequestRefused
from logproof.eval.tasks.task import ClpItem, GenItem, Item, Kind, PplItem, Settings
from logproof.ir.facts import Facts
from logproof.ir.message import Message, text_message
from logproof.ir.request import Input, Request, Sampling, Schedule, Scoring

Form = Literal["text", "chat"]
Name = Literal["prompt_scores", "label_scores", "top_k", "scored_text", "text"]


LABEL_CONTEXT = "Answer:"
"""The end of every label prompt: behind it, label ids are found."""


class Way(msgspec.Struct, frozen=True):
    """One way. needs: capability -> width. form: how the prompt travels.

    seeded: whether draws carry a seed; False where the wire takes none, so that draws cannot be repeated.
    """

    name: Name
    needs: dict[str, int]
    form: Form = "text"
    seeded: bool = True


class Plan(msgspec.Struct, frozen=True):
    """What the requests of a task share. label_ids: ids of the task's labels by label text, where known."""

    model: str
    way: Way
    settings: Settings
    label_ids: Mapping[str, int] = {}


def ways(kind: Kind, settings: Settings, tokenizer: bool) -> list[Way]:
    """The ways of a kind, best first. tokenizer: whether label ids can be found."""
    if kind == "ppl":
        return [Way("prompt_scores", {"input_scoring": 1})]
    if kind == "clp":
        exact = [Way("label_scores", {"label_scoring": 1})] if tokenizer else []
        plain = [*exact, Way("top_k", {"top_logprobs": settings.top_k})]
        return plain + [Way(way.name, {**way.needs, "prefill": 1}, "chat") for way in plain]
    seeded = [
        Way("scored_text", {"sampled_logprobs": 1}),
        Way("text", {}),
        Way("scored_text", {"sampled_logprobs": 1}, "chat"),
        Way("text", {}, "chat"),
    ]
    return seeded if settings.temperature == 0 else seeded + [replace(way, seeded=False) for way in seeded]


def choose(
    kind: Kind,
    settings: Settings,
    dialect: Dialect,
    facts: Facts,
    *,
    tokenizer: bool,
    others: Callable[[], Sequence[Dialect]] = tuple,
) -> Way:
    """The first way that this dialect lowers here.

    others: gives the dialects that a refusal may name. Raises PlanRefused, naming what lacks.
    """
    candidates = ways(kind, settings, tokenizer)
    reasons = []
    for way in candidates:
        reason = _refusal(way, settings, dialect, facts)
        if reason is None:
            return way
        reasons.append(reason)
    plan(candidates[0].needs, dialect, facts, others())
    raise PlanRefused(f"{dialect.id} cannot ask a {kind} task: {reasons[0]}")


def _refusal(way: Way, settings: Settings, dialect: Dialect, facts: Facts) -> str | None:
    lacking = [why for key, width in way.needs.items() if (why := missing(dialect, facts, key, width)) is not None]
    if lacking:
        return "; ".join(lacking)
    try:
        lower(
            _example(Plan(facts.models[0] if facts.models else "m", way, settings, {" A": 0, " B": 1})), dialect, facts
        )
    except RequestRefused as refused:
        return "; ".join(f"{leaf}: {why}" for leaf, why in refused.refusals)
    return None


def _example(plan: Plan) -> Request:
    items: dict[str, Item] = {
        "prompt_scores": PplItem("a", ("b",), (" b",), 0),
        "label_scores": ClpItem(f"a {LABEL_CONTEXT}", (" A", " B"), 0),
        "top_k": ClpItem(f"a {LABEL_CONTEXT}", (" A", " B"), 0),
    }
    item = items.get(plan.way.name, GenItem("a", ("b",), 8, "1"))
    return requests(item, plan)[0][1]


def requests(item: Item, plan: Plan, repeat: int = 0) -> list[tuple[str, Request]]:
    """(part, request) of one item. Parts: `option I`, `neutral I`, `labels`, `text`."""
    if isinstance(item, PplItem):
        asked = _ppl(item, plan)
    elif isinstance(item, ClpItem):
        asked = [("labels", _clp(item, plan))]
    else:
        asked = [("text", _gen(item, plan, repeat))]
    if not plan.settings.stream:
        return asked
    return [(part, replace(r, schedule=Schedule(stream=True))) for part, r in asked]


def prompts(item: PplItem) -> list[str]:
    """Context and continuation of each option."""
    return [item.context + continuation for continuation in item.continuations]


def neutral_prompts(item: PplItem) -> list[str]:
    """The neutral context and continuation of each option; empty where the item has none."""
    return [] if item.neutral is None else [item.neutral + continuation for continuation in item.continuations]


def _ppl(item: PplItem, plan: Plan) -> list[tuple[str, Request]]:
    """One token is sampled and thrown away: vLLM's scoring channel does not come with none."""
    texts = {f"option {i}": text for i, text in enumerate(prompts(item))}
    if plan.settings.uncond:
        texts |= {f"neutral {i}": text for i, text in enumerate(neutral_prompts(item))}
    sampling = Sampling(max_tokens=1, temperature=0.0)
    return [(part, Request(plan.model, Input(text=t), sampling, Scoring(prompt=0))) for part, t in texts.items()]


def _clp(item: ClpItem, plan: Plan) -> Request:
    """Temperature 1 without cuts: then every wire's logprobs are the model's own. The token drawn is not used."""
    sampling = Sampling(max_tokens=1, temperature=1.0)
    if plan.way.name == "label_scores":
        scoring = Scoring(label_ids=tuple(plan.label_ids[label] for label in item.labels))
    else:
        scoring = Scoring(sampled=plan.settings.top_k)
    given = Input(text=item.prompt) if plan.way.form == "text" else Input(messages=_begun(item.prompt))
    return Request(plan.model, given, sampling, scoring)


def _begun(prompt: str) -> tuple[Message, ...]:
    """The question as the user's message, `Answer:` as the assistant's turn to be continued.

    Raises DatasetError for a prompt that does not end so: its labels would be sought elsewhere.
    """
    question = prompt.removesuffix(LABEL_CONTEXT).rstrip()
    if question == prompt.rstrip() or not question:
        raise DatasetError(f"a label prompt over chat must be a question that ends in {LABEL_CONTEXT!r}")
    return text_message("user", question), text_message("assistant", LABEL_CONTEXT)


def _gen(item: GenItem, plan: Plan, repeat: int) -> Request:
    """Greedy unless a temperature is set; then each repeat has a seed of its own, where the wire takes seeds."""
    settings = plan.settings
    drawn = settings.temperature > 0 and plan.way.seeded
    sampling = Sampling(
        max_tokens=max_tokens(item, settings),
        temperature=settings.temperature,
        seed=settings.seed + repeat if drawn else None,
        stop=item.stop,
    )
    scoring = Scoring(sampled=0) if plan.way.name == "scored_text" else Scoring()
    return Request(plan.model, _input(item.prompt, plan.way.form), sampling, scoring)


def max_tokens(item: GenItem, settings: Settings) -> int:
    """Most tokens that may be generated."""
    return settings.max_tokens or item.max_tokens


def _input(text: str, form: Form) -> Input:
    return Input(text=text) if form == "text" else Input(messages=(text_message("user", text),))
