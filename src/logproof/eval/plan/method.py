"""Methods: how a kind of task is asked of one dialect at one endpoint, and the requests of one item.

    ppl   prompt scores of every option
    clp   exact label scores, else the top-k list at the first position
    gen   text with the logprobs of its tokens, else text alone; drawn by seed, else without one

The first method that the dialect lowers without a refusal is taken, before the run starts and for all of its rows,
and is part of the run's identity (stored under `way` and `ways`). Texts go out as text prompts; where a wire takes
only chat, generation goes out as one user message.

Labels are tokens behind `Answer:`. A chat wire asks for them only where it continues an assistant's turn: the
question is the user's message, `Answer:` the beginning of the assistant's. Behind a chat template's own header
the model writes `A`, not ` A`, so a wire without prefill cannot be asked for the same tokens and is refused. Pure.
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

PromptForm = Literal["text", "chat"]
MethodName = Literal["prompt_scores", "label_scores", "top_k", "scored_text", "text"]


LABEL_CONTEXT = "Answer:"
"""The end of every label prompt: behind it, label ids are found."""


class TaskMethod(msgspec.Struct, frozen=True):
    """One method. needs: capability -> width. form: how the prompt travels.

    seeded: whether draws carry a seed; False where the wire takes none, so that draws cannot be repeated.
    """

    name: MethodName
    needs: dict[str, int]
    form: PromptForm = "text"
    seeded: bool = True


class TaskPlan(msgspec.Struct, frozen=True):
    """What the requests of a task share. label_ids: ids of the task's labels by label text, where known."""

    model: str
    method: TaskMethod
    settings: Settings
    label_ids: Mapping[str, int] = {}


def methods_of(kind: Kind, settings: Settings, tokenizer: bool) -> list[TaskMethod]:
    """The methods of a kind, best first. tokenizer: whether label ids can be found."""
    if kind == "ppl":
        return [TaskMethod("prompt_scores", {"input_scoring": 1})]
    if kind == "clp":
        exact = [TaskMethod("label_scores", {"label_scoring": 1})] if tokenizer else []
        plain = [*exact, TaskMethod("top_k", {"top_logprobs": settings.top_k})]
        return plain + [TaskMethod(method.name, {**method.needs, "prefill": 1}, "chat") for method in plain]
    seeded = [
        TaskMethod("scored_text", {"sampled_logprobs": 1}),
        TaskMethod("text", {}),
        TaskMethod("scored_text", {"sampled_logprobs": 1}, "chat"),
        TaskMethod("text", {}, "chat"),
    ]
    return seeded if settings.temperature == 0 else seeded + [replace(method, seeded=False) for method in seeded]


def choose_method(
    kind: Kind,
    settings: Settings,
    dialect: Dialect,
    facts: Facts,
    *,
    tokenizer: bool,
    others: Callable[[], Sequence[Dialect]] = tuple,
) -> TaskMethod:
    """The first method that this dialect lowers here.

    others: gives the dialects that a refusal may name. Raises PlanRefused, naming what lacks.
    """
    candidates = methods_of(kind, settings, tokenizer)
    reasons = []
    for method in candidates:
        reason = _refusal(method, settings, dialect, facts)
        if reason is None:
            return method
        reasons.append(reason)
    plan(candidates[0].needs, dialect, facts, others())
    raise PlanRefused(f"{dialect.id} cannot ask a {kind} task: {reasons[0]}")


def _refusal(method: TaskMethod, settings: Settings, dialect: Dialect, facts: Facts) -> str | None:
    lacking = [why for key, width in method.needs.items() if (why := missing(dialect, facts, key, width)) is not None]
    if lacking:
        return "; ".join(lacking)
    try:
        lower(
            _example(TaskPlan(facts.models[0] if facts.models else "m", method, settings, {" A": 0, " B": 1})),
            dialect,
            facts,
        )
    except RequestRefused as refused:
        return "; ".join(f"{leaf}: {why}" for leaf, why in refused.refusals)
    return None


def _example(plan: TaskPlan) -> Request:
    items: dict[str, Item] = {
        "prompt_scores": PplItem("a", ("b",), (" b",), 0),
        "label_scores": ClpItem(f"a {LABEL_CONTEXT}", (" A", " B"), 0),
        "top_k": ClpItem(f"a {LABEL_CONTEXT}", (" A", " B"), 0),
    }
    item = items.get(plan.method.name, GenItem("a", ("b",), 8, "1"))
    return requests(item, plan)[0][1]


def requests(item: Item, plan: TaskPlan, repeat: int = 0) -> list[tuple[str, Request]]:
    """(part, request) of one item. Parts: `option I`, `neutral I`, `labels`, `text`."""
    if isinstance(item, PplItem):
        parts = _ppl(item, plan)
    elif isinstance(item, ClpItem):
        parts = [("labels", _clp(item, plan))]
    else:
        parts = [("text", _gen(item, plan, repeat))]
    if not plan.settings.stream:
        return parts
    return [(part, replace(r, schedule=Schedule(stream=True))) for part, r in parts]


def prompts(item: PplItem) -> list[str]:
    """Context and continuation of each option."""
    return [item.context + continuation for continuation in item.continuations]


def neutral_prompts(item: PplItem) -> list[str]:
    """The neutral context and continuation of each option; empty where the item has none."""
    return [] if item.neutral is None else [item.neutral + continuation for continuation in item.continuations]


def _ppl(item: PplItem, plan: TaskPlan) -> list[tuple[str, Request]]:
    """One token is sampled and thrown away: vLLM's scoring channel does not come with none."""
    texts = {f"option {i}": text for i, text in enumerate(prompts(item))}
    if plan.settings.uncond:
        texts |= {f"neutral {i}": text for i, text in enumerate(neutral_prompts(item))}
    sampling = Sampling(max_tokens=1, temperature=0.0)
    return [(part, Request(plan.model, Input(text=t), sampling, Scoring(prompt=0))) for part, t in texts.items()]


def _clp(item: ClpItem, plan: TaskPlan) -> Request:
    """Temperature 1 without cuts: then every wire's logprobs are the model's own. The token drawn is not used."""
    sampling = Sampling(max_tokens=1, temperature=1.0)
    if plan.method.name == "label_scores":
        scoring = Scoring(label_ids=tuple(plan.label_ids[label] for label in item.labels))
    else:
        scoring = Scoring(sampled=plan.settings.top_k)
    prompt = Input(text=item.prompt) if plan.method.form == "text" else Input(messages=_chat_turns(item.prompt))
    return Request(plan.model, prompt, sampling, scoring)


def _chat_turns(prompt: str) -> tuple[Message, ...]:
    """The question as the user's message, `Answer:` as the assistant's turn to be continued.

    Raises DatasetError for a prompt that does not end so: its labels would be sought elsewhere.
    """
    question = prompt.removesuffix(LABEL_CONTEXT).rstrip()
    if question == prompt.rstrip() or not question:
        raise DatasetError(f"a label prompt over chat must be a question that ends in {LABEL_CONTEXT!r}")
    return text_message("user", question), text_message("assistant", LABEL_CONTEXT)


def _gen(item: GenItem, plan: TaskPlan, repeat: int) -> Request:
    """Greedy unless a temperature is set; then each repeat has a seed of its own, where the wire takes seeds."""
    settings = plan.settings
    drawn = settings.temperature > 0 and plan.method.seeded
    sampling = Sampling(
        max_tokens=max_tokens(item, settings),
        temperature=settings.temperature,
        seed=settings.seed + repeat if drawn else None,
        stop=item.stop,
    )
    scoring = Scoring(sampled=0) if plan.method.name == "scored_text" else Scoring()
    return Request(plan.model, _input(item.prompt, plan.method.form), sampling, scoring)


def max_tokens(item: GenItem, settings: Settings) -> int:
    """Most tokens that may be generated."""
    return settings.max_tokens or item.max_tokens


def _input(text: str, form: PromptForm) -> Input:
    return Input(text=text) if form == "text" else Input(messages=(text_message("user", text),))
