"""An enforced token that the request's grammar rejects turns the grammar off for that request only.

Wrong upstream for a replay: a token that the grammar rejects ends the request with an error.

Delete when: vLLM enforces ids itself on both runners and keeps its grammars out of the enforced list.

Hook: ``StructuredOutputManager._create_grammar``. Requests with enforced ids get a guard around the backend's
grammar; plain requests keep the backend's own object. A guard that is off accepts everything, fills its bitmask row
with allow-all (the bitmask tensor is reused between steps, so a row left untouched would carry another request's
grammar), returns drafts unchanged, and comes back to life on ``reset``.

The position of the refusal is kept by tag for the reply; ``server/report`` fetches it through an engine-core utility.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from logproof_vllm import canonical
from logproof_vllm.hooks import MARK, marked

ALLOW_ALL = -1
KEPT = 8192

_OFF: OrderedDict[str, int] = OrderedDict()


def off_at(tag: str) -> int | None:
    """Position in the output at which request `tag` lost its grammar, or None. Reading forgets it."""
    return _OFF.pop(tag, None)


def _record(tag: str, position: int) -> None:
    _OFF[tag] = position
    while len(_OFF) > KEPT:
        _OFF.popitem(last=False)


class Guard:
    """A grammar of one enforced request: the backend's own until the first refusal. ``make`` compiles it."""

    def __init__(self, make: Callable[[], Any], tag: str) -> None:
        self.make = make
        self.inner = make()
        self.tag = tag
        self.accepted = 0
        self.off = False

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """Always true: a refusal switches the grammar off instead of failing the request."""
        if not self.off and not self.inner.is_terminated() and not self._accept(request_id, tokens):
            self.off = True
            _record(self.tag, self.accepted)
        self.accepted += len(tokens)
        return True

    def _accept(self, request_id: str, tokens: list[int]) -> bool:
        return all(self.inner.accept_tokens(request_id, [token]) or self.inner.is_terminated() for token in tokens)

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        return tokens if self.off else list(self.inner.validate_tokens(tokens))

    def rollback(self, num_tokens: int) -> None:
        self.accepted = max(0, self.accepted - num_tokens)
        if not self.off:
            self.inner.rollback(num_tokens)

    def fill_bitmask(self, bitmask: Any, batch_index: int) -> None:
        if self.off:
            bitmask[batch_index].fill_(ALLOW_ALL)
        else:
            self.inner.fill_bitmask(bitmask, batch_index)

    def is_terminated(self) -> bool:
        return not self.off and bool(self.inner.is_terminated())

    def reset(self) -> None:
        """Back to the beginning. After a refusal the grammar is compiled anew: guidance's stays in its error state."""
        self.accepted = 0
        if self.off:
            self.off = False
            self.inner = self.make()
        else:
            self.inner.reset()


def install() -> None:
    """Hook the manager, and give the engine core the utility that reports refusals."""
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.structured_output import StructuredOutputManager
    from vllm.v1.structured_output.backend_types import StructuredOutputGrammar

    if not marked(StructuredOutputManager._create_grammar):
        guard = type("LogproofGuard", (Guard, StructuredOutputGrammar), {})
        StructuredOutputManager._create_grammar = wrap_create(StructuredOutputManager._create_grammar, guard)
    if not hasattr(EngineCore, canonical.GRAMMAR_UTILITY):
        setattr(EngineCore, canonical.GRAMMAR_UTILITY, _utility)


def _utility(core: Any, tag: str) -> int | None:
    return off_at(tag)


def wrap_create(original: Callable[..., Any], guard: Callable[[Callable[[], Any], str], Any]) -> Callable[..., Any]:
    """Guard the grammars of enforced requests."""

    @functools.wraps(original)
    def _create_grammar(self: Any, request: Any) -> Any:
        plan = canonical.read(request.sampling_params)
        if plan is None or not plan.ids:
            return original(self, request)
        return guard(lambda: original(self, request), plan.tag)

    setattr(_create_grammar, MARK, True)
    return _create_grammar
