"""An EOS, a stop id or a stop string inside the enforced list does not end the request.

Wrong upstream for a replay: a request ends at the first stop, though the list goes on behind it.

Delete when: vLLM enforces ids itself on both runners and resumes after the list.

``check_stop`` (scheduler) and ``BaseIncrementalDetokenizer`` (API server) are the two places that end a request. Both
are left alone from the end of the list on, so the last enforced token may still end it. ``min_tokens`` cannot do
this: it masks the stop ids in the logits, which would change the reported distribution, and from 0.32 on it does
not hold back an EOS that was sampled anyway.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from logproof_vllm.canonical import enforced_length
from logproof_vllm.hooks import MARK, marked


def install_scheduler() -> None:
    """Hook the name that the scheduler calls."""
    from vllm.v1.core.sched import scheduler

    if not marked(scheduler.check_stop):
        scheduler.check_stop = wrap_check_stop(scheduler.check_stop)


def install_detokenizer() -> None:
    from vllm.v1.engine.detokenizer import BaseIncrementalDetokenizer

    if not marked(BaseIncrementalDetokenizer.__init__):
        BaseIncrementalDetokenizer.__init__ = wrap_detokenizer(BaseIncrementalDetokenizer.__init__)


def wrap_check_stop(original: Callable[..., bool]) -> Callable[..., bool]:
    """No stop while fewer tokens than the list holds are out; lengths were checked at ingestion."""

    @functools.wraps(original)
    def check_stop(request: Any, *args: Any, **kwargs: Any) -> bool:
        length = enforced_length(request.sampling_params)
        if length and request.num_output_tokens < length:
            return False
        return original(request, *args, **kwargs)

    setattr(check_stop, MARK, True)
    return check_stop


def wrap_detokenizer(original: Callable[..., None]) -> Callable[..., None]:
    """Stop strings are looked for only behind the list."""

    @functools.wraps(original)
    def __init__(self: Any, request: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, request, *args, **kwargs)
        self.min_tokens = max(self.min_tokens, enforced_length(request.sampling_params))

    setattr(__init__, MARK, True)
    return __init__
