"""Sample requests: one value of every class that matters for a leaf, and the kinds of endpoint to lower them for."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from logproof.dialects import openapi_fields
from logproof.ir.facts import Facts, Plugin
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
from logproof.ir.request import Function, Hosted, Input, Request

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


def _best(kind: str) -> Facts:
    bare = replace(
        FULL_FACTS, engine=kind, fields={}, plugin=None, tokenizer=False, vocab_size=None, logprobs_mode=None
    )
    if kind == "sglang":
        return replace(bare, fields=dict(openapi_fields.SGLANG), vocab_size=1000, tokenizer=True)
    return FULL_FACTS if kind == "vllm" else bare


BEST: Mapping[str, Facts] = {
    kind: _best(kind) for kind in ("vllm", "sglang", "llama.cpp", "tgi", "openai", "anthropic", "gemini", "litellm")
}
"""Kind of endpoint -> its facts at their best."""


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
