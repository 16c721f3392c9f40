"""What the middleware does with the body of a POST request: look for the fields, refuse, or hand on a changed body.

| path | what happens to the fields |
|---|---|
| /v1/chat/completions, /v1/completions | read here and left in the body; an unset length becomes the list's |
| /inference/v1/generate | checked, then moved into ``sampling_params.extra_args`` |
| every other path | refused: it would drop them and answer as if nothing had been asked |

Refused too, on every path: the fields inside an object where servers drop or bend them, and names that only look like
a field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from logproof_vllm import canonical, fields
from logproof_vllm.refusal import Refused
from logproof_vllm.runtime import STATUS, Binding
from logproof_vllm.server import checks, report

# The names of the length on each route: completions ignores the second one.
LENGTHS = {"/v1/chat/completions": ("max_tokens", "max_completion_tokens"), "/v1/completions": ("max_tokens",)}
MODEL_PATHS = tuple(LENGTHS)
GENERATE_PATH = "/inference/v1/generate"
SERVED_PATHS = (*MODEL_PATHS, GENERATE_PATH)

_PREFIX = "enforced"
_NAMES = re.compile(rb'"(?:enforced\w*|logprobs_mode|logproof)"')
# An ASCII character spelled as an escape, or a body that is not UTF-8: names could hide from a search of bytes.
_HIDDEN = re.compile(rb"\\u00[2-7][0-9a-fA-F]")
_FORM = re.compile(rb'(?:name="?|^|&)(enforced_[a-z_]+|logprobs_mode)["=\r\n;]')
# Objects inside a body: servers ignore unknown names in them, and vllm_xargs turns true into 1.
_NESTS = ("sampling_params", "extra_args", "extra_body", "vllm_xargs")


def mentions(body: bytes) -> bool:
    """True when a JSON body may hold one of the fields as a key."""
    return b"\x00" in body or any(pattern.search(body) is not None for pattern in (_NAMES, _HIDDEN))


def check_form(path: str, body: bytes) -> None:
    """Forms carry audio; no route that takes them enforces anything. Raises :class:`Refused`."""
    match = _FORM.search(body)
    if match is not None:
        raise _not_here(match[1].decode(), path)


def prepare(path: str, body: bytes, current: report.Report) -> bytes:
    """The body to hand on; `body` itself when no field is set. Raises :class:`Refused`."""
    try:
        return _prepare(path, body, current)
    except RecursionError:
        raise Refused("the body is nested too deep") from None


def _prepare(path: str, body: bytes, current: report.Report) -> bytes:
    content = _parse(body)
    if content is None:
        return body
    _check_places(content)
    names = [name for name in fields.FIELDS if content.get(name) is not None]
    arguments = _extra_args(content) if path == GENERATE_PATH else {}
    if canonical.KEY in arguments:
        raise Refused(f"sampling_params.extra_args: {canonical.KEY} is not a field of requests", "extra_args")
    if not names and not any(name in arguments for name in fields.FIELDS):
        return body
    if len(body) > STATUS.limits.body_bytes:
        raise Refused(f"the body has {len(body)} bytes; the ceiling with {names} is {STATUS.limits.body_bytes}")
    if path not in SERVED_PATHS:
        raise _not_here(names[0], path)
    changed = _model_body(content, current, LENGTHS[path]) if path in LENGTHS else _generate_body(content, current)
    return json.dumps(content).encode() if changed else body


def _parse(body: bytes) -> dict[str, Any] | None:
    """The object in `body`; None for other JSON and for none, about which the server says itself what is wrong."""
    try:
        content = json.loads(body)
    except ValueError:
        return None
    return content if isinstance(content, dict) else None


def _not_here(name: str, path: str) -> Refused:
    return Refused(f"{name}: {path} cannot enforce it; use {', '.join(SERVED_PATHS)}", name)


def _check_places(content: Mapping[str, Any]) -> None:
    for name, value in content.items():
        if name.startswith(_PREFIX) and name not in fields.FIELDS and value is not None:
            raise Refused(f"{ascii(name)[:60]}: no such field; the fields are {', '.join(fields.FIELDS)}")
    for nest in _NESTS:
        inner = content.get(nest)
        for name in (canonical.KEY, *fields.FIELDS):
            if isinstance(inner, dict) and inner.get(name) is not None:
                raise Refused(f"{nest}.{name}: send {name} at the top level of the body", nest)


def _model_body(content: dict[str, Any], current: report.Report, lengths: Sequence[str]) -> bool:
    """Read the fields for the request models, which are asked for parameters later, and set an unset length.

    With the length in the body the server's own sums say how much room the prompt leaves, before any reply begins.
    Returns whether `content` changed.
    """
    plan = _read(content, {}, checks.ready())
    current.body_plan = plan
    if plan is None or not plan.ids:
        return False
    if any(content.get(name) is not None for name in lengths):
        return False
    content["max_tokens"] = len(plan.ids)
    return True


def _generate_body(content: dict[str, Any], current: report.Report) -> bool:
    """Put the canonical entry into the sampling parameters of /inference/v1/generate."""
    parameters = content.get("sampling_params")
    if not isinstance(parameters, dict):
        raise Refused("sampling_params: must be an object", "sampling_params")
    arguments = parameters.get("extra_args") or {}
    if not isinstance(arguments, dict):
        raise Refused("sampling_params.extra_args: must be an object", "extra_args")
    engine = checks.ready()
    plan = _read(content, arguments, engine)
    for name in fields.FIELDS:
        content.pop(name, None)
    if plan is None:
        return True
    prompt = content.get("token_ids")
    _check_generate(parameters, plan, engine, len(prompt) if isinstance(prompt, list) else 0)
    entry = canonical.entry_of(plan.ids, plan.mode.mode)
    extra = {key: value for key, value in arguments.items() if key not in fields.FIELDS}
    parameters["extra_args"] = {**extra, canonical.KEY: entry}
    current.fill(plan, engine.default_mode, entry["tag"], parameters.get("structured_outputs") is not None)
    return True


def _read(content: dict[str, Any], arguments: dict[str, Any], engine: Binding) -> fields.FieldPlan | None:
    inner = {k: v for k, v in arguments.items() if k in fields.FIELDS and v is not None}
    outer = {k: v for k, v in content.items() if k in fields.FIELDS and v is not None}
    twice = sorted(set(inner) & set(outer))
    if twice:
        raise Refused(f"{twice[0]}: sent twice; send it at the top level only", twice[0])
    return checks.read_fields({**outer, **inner}, engine)


def _check_generate(parameters: dict[str, Any], plan: fields.FieldPlan, engine: Binding, prompt: int) -> None:
    """A stream answers 200 before the engine checks anything, so every refusal must come from here."""
    if plan.ids and parameters.get("max_tokens") is None:
        parameters["max_tokens"] = len(plan.ids)
    checks.check_engine(plan, engine)
    checks.check_params(_View(parameters), plan, engine)
    checks.check_fits(prompt, len(plan.ids), engine)


class _View:
    """Sampling parameters of a JSON body, read like the engine's own object."""

    def __init__(self, parameters: dict[str, Any]) -> None:
        self.n = parameters.get("n", 1)
        self.prompt_logprobs = parameters.get("prompt_logprobs")
        self.prompt_logprob_token_ids = parameters.get("prompt_logprob_token_ids")
        self.trace_decode_token_ids = parameters.get("trace_decode_token_ids")
        self.structured_outputs = parameters.get("structured_outputs")
        tokens = parameters.get("max_tokens")
        # Another kind of number is no length here: the server may round it after this check.
        self.max_tokens = tokens if type(tokens) is int else -1


def _extra_args(content: dict[str, Any]) -> dict[str, Any]:
    parameters = content.get("sampling_params")
    extra = parameters.get("extra_args") if isinstance(parameters, dict) else None
    return extra if isinstance(extra, dict) else {}
