"""Leaf paths: the names by which ledger, matrix and messages speak of request fields.

A leaf is `group.field` (`sampling.temperature`), `model`, `options.NAME` for a wire field outside the IR, or
`input.messages.FEATURE` for what messages hold beyond plain text (ir/message.py `features`).
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

import msgspec
from msgspec.structs import replace

from logproof.ir.message import features
from logproof.ir.request import Input, Request

MESSAGE_FEATURES = (
    "system",
    "developer",
    "tool",
    "name",
    "null_content",
    "image",
    "image_detail",
    "tool_call",
    "tool_result",
    "tool_error",
    "reasoning",
    "opaque",
    "prefill",
)


@cache
def _groups() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """(group, its fields) in declaration order, read off the Request type."""
    groups = []
    for field in msgspec.structs.fields(Request):
        group = Input if field.name == "input" else type(field.default)
        if issubclass(group, msgspec.Struct):
            groups.append((field.name, tuple(f.name for f in msgspec.structs.fields(group))))
    return tuple(groups)


@cache
def leaf_paths() -> tuple[str, ...]:
    """All leaf paths but `options.*`, which callers name themselves."""
    paths = ["model"]
    for group, names in _groups():
        paths += [f"{group}.{name}" for name in names]
        if group == "input":
            paths += [f"input.messages.{feature}" for feature in MESSAGE_FEATURES]
    return tuple(paths)


def active_leaves(request: Request) -> dict[str, object]:
    """{leaf path: value} of every leaf that the caller set, in declaration order; options last."""
    active: dict[str, object] = {"model": request.model}
    for group, names in _groups():
        record = getattr(request, group)
        for name in names:
            value = getattr(record, name)
            if value is not None:
                active[f"{group}.{name}"] = value
    if request.input.messages is not None:
        active.update({f"input.messages.{k}": v for k, v in features(request.input.messages).items()})
    active.update({f"options.{name}": value for name, value in request.options.items()})
    return active


def without(request: Request, leaves: Collection[str]) -> Request:
    """The request with these leaves unset; a feature of messages cannot be unset and is left alone."""
    changed = request
    for leaf in leaves:
        group, _, name = leaf.partition(".")
        if group == "options":
            kept = {key: value for key, value in changed.options.items() if key != name}
            changed = replace(changed, options=kept)
        elif name and not leaf.startswith("input.messages"):
            changed = replace(changed, **{group: replace(getattr(changed, group), **{name: None})})
    return changed
