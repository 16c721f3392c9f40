"""Counters of one run: requests, attempts, tokens, and how long replies took; constant memory.

Seconds go into buckets whose borders grow by 10 %, so a percentile is exact to that and any number of calls
takes the same room.
"""

from __future__ import annotations

import math
from itertools import accumulate

import msgspec

from logproof.dialects.call import Call

SMALLEST = 1e-4
"""Seconds of the first bucket."""
GROWTH = 1.1
BUCKETS = 240


class Counters(msgspec.Struct):
    """requests: calls that were made. failed: of them. retries: attempts beyond the first of each.

    prompt_tokens, completion_tokens: as replies reported; uncounted: replies that reported none. samples: that
    ended; lost: of them, failed. replying: seconds of all replies together. queued: seconds that requests spent
    before the attempt that was answered (waiting for their turn, and earlier attempts). in_flight: requests now.
    slowest: seconds of the slowest reply.
    """

    requests: int = 0
    failed: int = 0
    retries: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    uncounted: int = 0
    samples: int = 0
    lost: int = 0
    replying: float = 0.0
    queued: float = 0.0
    in_flight: int = 0
    slowest: float = 0.0
    seconds: list[int] = msgspec.field(default_factory=lambda: [0] * BUCKETS)

    def add(self, call: Call, wall: float = 0.0) -> None:
        """Count a call that succeeded. wall: seconds from asking to having it."""
        usage = call.response.usage
        self.requests += 1
        self.retries += call.attempts - 1
        self.prompt_tokens += usage.prompt or 0
        self.completion_tokens += usage.completion or 0
        self.uncounted += usage.prompt is None or usage.completion is None
        self.replying += call.seconds
        self.queued += max(0.0, wall - call.seconds)
        self.slowest = max(self.slowest, call.seconds)
        self.seconds[_bucket(call.seconds)] += 1

    def add_failure(self, attempts: int = 1) -> None:
        """Count a call that failed after this many sends; 0 where it was refused before."""
        self.requests += 1
        self.failed += 1
        self.retries += max(0, attempts - 1)

    def add_sample(self, ok: bool) -> None:
        """Count a sample that ended."""
        self.samples += 1
        self.lost += not ok

    def percentile(self, share: float) -> float | None:
        """Seconds that this share (0 to 1) of the replies took at most, within 10 %; None without a reply."""
        wanted = share * sum(self.seconds)
        if not wanted:
            return None
        reached = next(i for i, count in enumerate(accumulate(self.seconds)) if count >= wanted)
        return min(self.slowest, SMALLEST * GROWTH ** (reached + 1))

    def line(self) -> str:
        """All of it in one line."""
        times = [f"{name} {t:.3g} s" for name, share in _SHOWN if (t := self.percentile(share)) is not None]
        parts = [
            f"{self.requests} requests ({self.failed} failed, {self.retries} retries)",
            f"{self.prompt_tokens} tokens in, {self.completion_tokens} out",
            f"reply {', '.join(times)}" if times else "no reply",
        ]
        if answered := sum(self.seconds):
            parts.append(f"queue {self.queued / answered:.3g} s a request")
        if self.uncounted:
            parts.append(f"{self.uncounted} replies without token counts")
        return "; ".join(parts)


_SHOWN = (("median", 0.5), ("p95", 0.95), ("p99", 0.99))


def _bucket(seconds: float) -> int:
    if seconds <= SMALLEST:
        return 0
    return min(int(math.log(seconds / SMALLEST, GROWTH)), BUCKETS - 1)
