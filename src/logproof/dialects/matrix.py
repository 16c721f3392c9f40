"""Matrix: what each dialect does with each leaf and capability, found by probing `lower`.

Nothing here is a list of what is supported: every cell comes from lowering a sample request, so tables and
contract tests cannot drift from the code. `SAMPLES` holds one value of every class that matters for a leaf.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from logproof.dialects.capabilities import CAPABILITIES, missing
from logproof.dialects.common import openapi_fields
from logproof.dialects.dialect import Dialect
from logproof.dialects.lower import lower
from logproof.dialects.registry import FITTING
from logproof.errors import InvalidRequest, RequestRefused
from logproof.ir.facts import Facts, Plugin
from logproof.ir.leaves import leaf_paths
from logproof.ir.message import (
    ImagePart,
    Message,
    Opaque,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    text_message,
)
from logproof.ir.request import Function, Hosted, Input, Request, Sampling

USER = text_message("user", "Hi")
INPUTS = {
    "text": Input(text="Hi"),
    "messages": Input(messages=(USER,)),
    "token_ids": Input(token_ids=(1, 2)),
}
"""The kinds of input, in the order in which a dialect's baseline is sought."""

_SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
_FUNCTION = Function("f", "does f", {"type": "object", "properties": {}}, None)

SAMPLES: Mapping[str, tuple[object, ...]] = {
    "model": ("m",),
    "input.text": ("Hi",),
    "input.token_ids": ((1, 2),),
    "input.messages": ((USER,),),
    "input.suffix": ("!",),
    "sampling.max_tokens": (16, 1, 0),
    "sampling.temperature": (0.7, 0.0, 1.0),
    "sampling.top_p": (0.9, 1.0),
    "sampling.top_k": (5, 0, -1),
    "sampling.seed": (7, 0),
    "sampling.stop": (("x",), (), ("a", "b", "c", "d", "e"), ("\n\n",)),
    "sampling.n": (2, 1),
    "sampling.frequency_penalty": (0.5, 0.0),
    "sampling.presence_penalty": (0.5, 0.0),
    "sampling.logit_bias": ({5: 2.0},),
    "scoring.prompt": (0, 3),
    "scoring.sampled": (0, 3),
    "scoring.label_ids": ((1, 2),),
    "scoring.top_by": ("id", "text"),
    "replay.token_ids": ((1, 2),),
    "replay.logprobs_mode": ("raw", "processed"),
    "output.json_schema": (_SCHEMA,),
    "output.json_object": (True,),
    "output.regex": ("[a-z]+",),
    "output.choice": (("yes", "no"),),
    "output.grammar": ('root ::= "a"',),
    "output.name": ("answer",),
    "output.strict": (True, False),
    "reasoning.effort": ("none", "minimal", "low", "medium", "high", "xhigh", "max"),
    "reasoning.budget_tokens": (2048,),
    "reasoning.summary": ("auto", "concise", "detailed"),
    "tools.functions": ((_FUNCTION,),),
    "tools.hosted": ((Hosted("web_search"),), (Hosted("web_search_20250305"),), (Hosted("googleSearch"),)),
    "tools.choice": ("auto", "none", "required", "function:f"),
    "tools.parallel": (True, False),
    "session.previous_response_id": ("resp_1",),
    "session.store": (True, False),
    "schedule.stream": (True, False),
}
"""leaf -> values to probe it with. `input.messages.*` are probed with `MESSAGES`."""

_CALL = Message("assistant", (ToolCallPart("c1", "f", "{}"),))


def _turns(*parts: Part) -> tuple[Message, ...]:
    return (USER, Message("assistant", parts), USER)


MESSAGES: Mapping[str, tuple[Message, ...]] = {
    "system": (text_message("system", "Be brief."), USER),
    "developer": (text_message("developer", "Be brief."), USER),
    "tool": (USER, _CALL, Message("tool", (ToolResultPart("c1", "1", name="f"),))),
    "name": (Message("user", (TextPart("Hi"),), name="ann"),),
    "null_content": (USER, Message("assistant", None), USER),
    "image": (Message("user", (ImagePart(data="aGk=", media_type="image/png"),)),),
    "image_detail": (Message("user", (ImagePart(url="https://x.test/a.png", detail="low"),)),),
    "tool_call": (USER, _CALL, Message("tool", (ToolResultPart("c1", "1", name="f"),))),
    "tool_result": (USER, _CALL, Message("tool", (ToolResultPart("c1", "1", name="f"),))),
    "tool_error": (USER, _CALL, Message("tool", (ToolResultPart("c1", "bad", is_error=True, name="f"),))),
    "reasoning": _turns(ReasoningPart("so"), TextPart("Yes")),
    "opaque": _turns(
        TextPart("Yes", Opaque("elsewhere", "signature", "e")),
    ),
    "prefill": (USER, text_message("assistant", "Yes")),
}
"""message feature -> messages that show it."""

FULL_FACTS = Facts(
    engine="vllm",
    models=("m",),
    max_model_len=4096,
    max_logprobs=100,
    vocab_size=1000,
    logprobs_mode="raw",
    fields=dict(openapi_fields.VLLM),
    tokenizer=True,
    deterministic=True,
    plugin=Plugin("0.1.0", enforced_replay=True, logprobs_mode=True),
)
"""A vLLM with the plugin, of which everything is known and on."""


def endpoints(dialect: Dialect) -> dict[str, Facts]:
    """{kind of endpoint: its facts at their best} of the endpoints that speak this dialect; FULL_FACTS for none."""
    kinds = [kind for kind, spoken in FITTING.items() if dialect.id in spoken]
    return {kind: _best(kind) for kind in kinds} or {"vllm": FULL_FACTS}


def _best(kind: str) -> Facts:
    bare = replace(
        FULL_FACTS, engine=kind, fields={}, plugin=None, tokenizer=False, vocab_size=None, logprobs_mode=None
    )
    if kind == "sglang":
        return replace(bare, fields=dict(openapi_fields.SGLANG), vocab_size=1000, tokenizer=True)
    return FULL_FACTS if kind == "vllm" else bare


class Cell(msgspec.Struct, frozen=True):
    """One probe of a leaf. value: what was asked. kind, detail: the decision, its pointer or its reason."""

    leaf: str
    value: object
    kind: str
    detail: str


def baseline(dialect: Dialect, facts: Facts) -> Request:
    """A plain request that the dialect accepts. Raises ValueError where it accepts none."""
    for given in INPUTS.values():
        request = Request("m", given, sampling=Sampling(max_tokens=16))
        try:
            lower(request, dialect, facts)
        except RequestRefused:
            continue
        return request
    raise ValueError(f"{dialect.id} accepts no plain request")


def with_leaf(request: Request, leaf: str, value: object) -> Request:
    """The request with one leaf set; an input leaf takes the place of the others."""
    group, _, name = leaf.partition(".")
    if leaf == "model":
        return replace(request, model=value)
    if leaf == "input.suffix":
        return replace(request, input=Input(text="Hi", suffix=str(value)))
    if group == "input":
        return replace(request, input=replace(Input(), **{name: value}))
    changed = {name: value}
    if leaf == "tools.choice" or leaf == "tools.parallel":
        changed["functions"] = (_FUNCTION,)
    if leaf in ("output.name", "output.strict"):
        changed["json_schema"] = _SCHEMA
    record = replace(getattr(request, group), **changed)
    return replace(request, **{group: record})


def probe_leaf(dialect: Dialect, facts: Facts, leaf: str) -> tuple[Cell, ...]:
    """The decisions about one leaf, one for each sample value."""
    base = baseline(dialect, facts)
    if leaf == "input.messages.opaque":
        own = CAPABILITIES["opaque_continuation"].sample(dialect, 1)
        return tuple(_cell(dialect, facts, request, leaf, "its own blob") for request in own)
    if leaf.startswith("input.messages."):
        messages = MESSAGES[leaf.removeprefix("input.messages.")]
        return (_cell(dialect, facts, with_leaf(base, "input.messages", messages), leaf, "messages"),)
    return tuple(_cell(dialect, facts, with_leaf(base, leaf, value), leaf, value) for value in SAMPLES[leaf])


def _cell(dialect: Dialect, facts: Facts, request: Request, leaf: str, value: object) -> Cell:
    try:
        lowered = lower(request, dialect, facts)
    except RequestRefused as refused:
        reasons = dict(refused.refusals)
        return Cell(leaf, value, "refused", reasons.get(leaf) or "; ".join(f"{k}: {v}" for k, v in reasons.items()))
    except InvalidRequest as invalid:
        return Cell(leaf, value, "invalid", str(invalid))
    decision = next(d for d in lowered.decisions if d.leaf == leaf)
    return Cell(leaf, value, decision.kind, decision.pointer or decision.reason or "")


LeafMatrix = dict[str, dict[str, dict[str, tuple[Cell, ...]]]]
CapabilityMatrix = dict[str, dict[str, dict[str, str | None]]]


def leaf_matrix(dialects: Iterable[Dialect]) -> LeafMatrix:
    """{leaf: {dialect id: {kind of endpoint: cells}}} for all leaves."""
    known = [(d, endpoints(d)) for d in dialects]
    return {
        leaf: {d.id: {kind: probe_leaf(d, facts, leaf) for kind, facts in kinds.items()} for d, kinds in known}
        for leaf in leaf_paths()
    }


def capability_matrix(dialects: Iterable[Dialect]) -> CapabilityMatrix:
    """{capability: {dialect id: {kind of endpoint: None where it has it, else why not}}}."""
    known = [(d, endpoints(d)) for d in dialects]
    return {
        key: {d.id: {kind: missing(d, facts, key) for kind, facts in kinds.items()} for d, kinds in known}
        for key in CAPABILITIES
    }


def merged(words: Mapping[str, str]) -> str:
    """One text for {kind of endpoint: word}: the word where all agree, else each word with its kinds."""
    kinds: dict[str, list[str]] = {}
    for kind, word in words.items():
        kinds.setdefault(word, []).append(kind)
    if len(kinds) == 1:
        return next(iter(kinds))
    return "; ".join(f"{word}: {', '.join(where)}" for word, where in kinds.items())


def decided(cells: Iterable[Cell]) -> str:
    """One word for the cells of a leaf at one endpoint; `by value` where values are decided differently."""
    kinds = {"-" if c.kind in ("refused", "invalid") else c.kind for c in cells}
    return kinds.pop() if len(kinds) == 1 else "by value"
