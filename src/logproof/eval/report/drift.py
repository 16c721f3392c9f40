"""Drift: whether the fixed prompt of a run got other logprobs later on.

Differences are mean absolute differences of logprobs over the positions, in nats, against the nearest scoring of the
start; the noise is the largest such difference within the start, whose first scoring is a warm-up and not used.
A drift above max(FLOOR, NOISES x noise), or other tokens, make the run suspect. Every endpoint of a run and every
session of a resumed one is compared with the first start of all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec
import numpy as np

from logproof.eval.score.stored_calls import response_of
from logproof.ir.response import Floats, Ids
from logproof.store.records import CallRecord

KEY = "canary"
"""Sample key of the canary's calls."""


FLOOR = 0.05
"""Drift below this is never marked, nats: batches of other sizes move bfloat16 engines by a few hundredths."""


NOISES = 4.0


STARTS = 4
"""Scorings at the start, the warm-up among them."""


When = Literal["start", "middle", "end"]


class Drift(msgspec.Struct, frozen=True):
    """How the canary scored. scored: how often. noise, drift: nats, None where too little was scored.

    when: which scoring drifted most. tokens_changed: it gave other tokens. suspect: see the module.
    """

    scored: int
    failed: int
    noise: float | None = None
    drift: float | None = None
    when: str | None = None
    tokens_changed: bool = False

    @property
    def suspect(self) -> str | None:
        """Why the run is suspect, or None."""
        if self.tokens_changed:
            return f"the canary's tokens changed ({self.when})"
        if self.drift is None or self.noise is None or self.drift <= max(FLOOR, NOISES * self.noise):
            return None
        return (
            f"the canary drifted by {self.drift:.3g} nats a token ({self.when}); its noise at the start was "
            f"{self.noise:.3g}"
        )


def drift(records: Iterable[CallRecord]) -> Drift | None:
    """What the stored scorings say; None where there is none. Raises StoreError for a damaged record."""
    stored = list(records)
    failed = sum(r.status != "ok" for r in stored)
    scored = [s for r in stored if r.status == "ok" and (s := _scored(r)) is not None and not s.warm_up]
    if not stored:
        return None
    started = [s for s in scored if " start " in s.part]
    starts = [s for s in started if _origin(s) == _origin(started[0])]
    rest = [s for s in scored if s not in starts]
    if not starts or not rest:
        return Drift(len(scored), failed)
    noise = max((_apart(a, b) for i, a in enumerate(starts) for b in starts[:i]), default=0.0)
    worst, part = max((min(_apart(s, a) for a in starts), s.part) for s in rest)
    changed = not np.isfinite(worst)
    return Drift(len(scored), failed, _known(noise), _known(worst), part, tokens_changed=changed)


def _origin(scored: _CanaryScore) -> tuple[str, str | None]:
    """Session and endpoint."""
    return scored.part.split(" ")[0], scored.endpoint


def _known(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _scored(record: CallRecord) -> _CanaryScore | None:
    response = response_of(record)
    of_prompt = response.prompt is not None
    tokens = response.prompt if response.prompt is not None else response.choices[0].tokens
    return (
        None if tokens is None else _CanaryScore(record.part, record.endpoint, of_prompt, tokens.ids, tokens.logprobs)
    )


def _apart(a: _CanaryScore, b: _CanaryScore) -> float:
    """Mean |difference|, nats; infinite where the tokens or the unscored positions are others.

    Greedy tokens may part at a near tie; they are compared as far as they agree.
    """
    n = min(len(a.logprobs), len(b.logprobs))
    same = n
    if a.ids is not None and b.ids is not None:
        unlike = np.flatnonzero(a.ids[:n] != b.ids[:n])
        same = int(unlike[0]) if len(unlike) else n
    if a.of_prompt and (same < n or len(a.logprobs) != len(b.logprobs)):
        return float("inf")
    x, y = a.logprobs[:same], b.logprobs[:same]
    known = np.isfinite(x)
    if (known != np.isfinite(y)).any() or not known.any():
        return float("inf")
    return float(np.abs(x[known] - y[known]).mean())


class _CanaryScore(msgspec.Struct, eq=False):
    part: str
    endpoint: str | None
    of_prompt: bool
    ids: Ids | None
    logprobs: Floats

    @property
    def warm_up(self) -> bool:
        """The first scoring of an endpoint's start."""
        return self.part.split(" ")[1:3] == ["start", "0"]
