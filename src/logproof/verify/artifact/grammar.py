"""The constraint of a recorded request: its digest, and the same constraint for a replay. Pure.

Under a grammar an engine masks the logits first, so its raw logprobs are those of the tokens that the grammar lets
through ("constrained"). Only an enforced decode under the same grammar reports the same distribution.
"""

from __future__ import annotations

import hashlib
import json

import msgspec

from logproof.ir.request import STRUCTURED, Output

_OWN_FIELDS = ("structured_outputs", "response_format")
_INNER_FIELDS = {
    "sampling_params": ("json_schema", "regex", "ebnf", "structural_tag"),
    "text": ("format",),
    "output_config": ("format",),
    "generationConfig": ("responseSchema", "responseJsonSchema"),
}
"""Objects of other wires' bodies (SGLang's, Responses', Anthropic's, Google's) and what constrains the text in them."""
_OUTPUT_NAMES = {"json": "json_schema", **{name: name for name in STRUCTURED if name != "json_schema"}}
"""Keys of vLLM's structured_outputs and the leaf of Output that each one is."""


def digest(body: dict[str, object]) -> str:
    """SHA-256 of what constrains the text of a request, as canonical JSON; "" where nothing does."""
    stated = _stated(body)
    if _forced(body):
        stated |= {"tools": body.get("tools"), "tool_choice": body.get("tool_choice")}
    if not stated:
        return ""
    text = json.dumps(stated, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _stated(body: dict[str, object]) -> dict[str, object]:
    stated = {name: body[name] for name in _OWN_FIELDS if body.get(name)}
    for outer, names in _INNER_FIELDS.items():
        inner = body.get(outer)
        if isinstance(inner, dict):
            stated |= {f"{outer}.{name}": inner[name] for name in names if inner.get(name)}
    return {name: value for name, value in stated.items() if value != {"type": "text"}}


def _forced(body: dict[str, object]) -> bool:
    """Whether a grammar holds the tool calls: a forced call, or a function with `strict`."""
    tools, choice = body.get("tools"), body.get("tool_choice")
    if not isinstance(tools, list) or not tools or choice == "none":
        return False
    return choice == "required" or isinstance(choice, dict) or any('"strict": true' in json.dumps(t) for t in tools)


def constraint(body: object, claimed: str | None) -> Output | str:
    """The leaves that put the recorded grammar over a replay, or why they cannot be made.

    body: the recorded request. claimed: digest that the artifact states.
    """
    if not isinstance(body, dict):
        return "the recorded request holds no grammar"
    if digest(body) != claimed:
        return "the recorded request's grammar is not the one that the artifact claims"
    if _forced(body):
        return "a grammar over tool calls cannot be replayed as one over text"
    stated = _stated(body)
    if len(stated) != 1:
        return f"{len(stated)} constraints are recorded, a replay takes one"
    ((name, value),) = stated.items()
    if name not in _OWN_FIELDS:
        return f"a constraint in {name} cannot be replayed"
    return _structured(value) if name == "structured_outputs" else _response_format(value)


def _structured(value: object) -> Output | str:
    leaves = {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else {}
    unknown = sorted(str(k) for k in leaves if k not in _OUTPUT_NAMES)
    if unknown or len(leaves) != 1:
        return f"structured_outputs of this kind cannot be replayed ({', '.join(unknown) or len(leaves)})"
    ((name, constraint_),) = leaves.items()
    return _output({_OUTPUT_NAMES[name]: constraint_})


def _response_format(value: object) -> Output | str:
    """vLLM makes the same grammar of a response_format as of the structured_outputs it stands for."""
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "json_object":
        return Output(json_object=True)
    if isinstance(value, dict) and kind == "json_schema" and isinstance(value.get("json_schema"), dict):
        return _output({"json_schema": value["json_schema"].get("schema")})
    return f"a response_format of type {kind!r} cannot be replayed"


def _output(leaves: dict[str, object]) -> Output | str:
    schema = leaves.get("json_schema")
    try:
        if isinstance(schema, str):
            leaves = {"json_schema": msgspec.json.decode(schema)}
        output = msgspec.convert(leaves, Output)
    except (msgspec.MsgspecError, RecursionError):
        return "the recorded grammar cannot be read"
    return output if any(getattr(output, name) is not None for name in STRUCTURED) else "the recorded grammar is empty"
