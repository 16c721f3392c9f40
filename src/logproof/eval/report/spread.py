"""Spread: how large the differences between two runs are, position by position, in constant memory. Pure."""

from __future__ import annotations

import msgspec
import numpy as np

from logproof.ir.response import Floats

EDGES = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
"""Upper ends of the bins in nat: exactly equal, up to 1e-6, and so on; the last bin holds the rest."""


class Spread(msgspec.Struct):
    """|difference| of logprobs over all compared positions. counts: by bin of EDGES. total: their sum in nat."""

    counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(EDGES) + 1))
    total: float = 0.0

    def add(self, differences: Floats) -> None:
        """Count some |differences|; each is finite and not negative."""
        bins = np.searchsorted(np.asarray(EDGES), differences, side="left")
        for at, count in enumerate(np.bincount(bins, minlength=len(self.counts)).tolist()):
            self.counts[at] += count
        self.total += float(differences.sum())

    @property
    def positions(self) -> int:
        """Positions counted."""
        return sum(self.counts)

    @property
    def mean(self) -> float | None:
        """Mean |difference| in nat, None where nothing was counted."""
        return self.total / self.positions if self.positions else None

    def bound(self, share: float) -> float | None:
        """The least bin end that at least `share` of the positions do not exceed; None above the last, or of none."""
        needed = share * self.positions
        reached = np.cumsum(self.counts)
        at = int(np.searchsorted(reached, needed, side="left"))
        return EDGES[at] if self.positions and at < len(EDGES) else None
