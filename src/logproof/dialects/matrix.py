"""Matrix: what each dialect does with each leaf and capability, found by probing `lower`.

Nothing here is a list of what is supported: every cell comes from lowering a sample request, so tables and
contract tests cannot drift from the code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from logproof.dialects.capabilities import CAPABILITIES, missing
from logproof.dialects.dialect import Dialect
from logproof.dialects.lower import lower
from logproof.dialects.registry import FITTING
from logproof.dialects.sample_requests import BEST, FULL_FACTS, INPUTS, MESSAGES, SAMPLES, with_leaf
from logproof.errors import InvalidRequest, RequestRefused
from logproof.ir.facts import Facts
from logproof.ir.leaves import leaf_paths
from logproof.ir.request import Request, Sampling


def endpoints(dialect: Dialect) -> dict[str, Facts]:
    """{kind of endpoint: its facts at their best} of the endpoints that speak this dialect; FULL_FACTS for none."""
    kinds = [kind for kind, spoken in FITTING.items() if dialect.id in spoken]
    return {kind: BEST[kind] for kind in kinds} or {"vllm": FULL_FACTS}


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
