"""The table of all distances: each is reported in the finding of S1 under its name, and listed in the documents."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import msgspec

from logproof.verify.artifact.columns import Columns
from logproof.verify.stats import distance
from logproof.verify.stats.distance import Pairs, Shape, Sigma
from logproof.verify.stats.gonka import GonkaLists


class ComparedRows(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Both sides of one replay, compared once for all distances. own: the artifact's rows. sigma: honest scales."""

    own: Columns
    verifier: Columns
    pairs: Pairs
    sigma: Sigma

    @classmethod
    def of(cls, own: Columns, verifier: Columns, sigma: Sigma) -> ComparedRows:
        """Both sides, paired. Raises ValueError where the positions differ in number."""
        return cls(own, verifier, distance.pair(own, verifier), sigma)

    @cached_property
    def line(self) -> Shape:
        """The signed shape of the residuals."""
        return distance.shape(self.pairs)

    @cached_property
    def lists(self) -> GonkaLists | None:
        """Both sides' lists of the artifact's width, for Gonka's forms; None unless every position lists something."""
        if not (len(self.own) and self.own.counts.all()):
            return None
        return GonkaLists(self.own, self.verifier.narrow(self.own.width), self.pairs)


class Distance(msgspec.Struct, frozen=True, kw_only=True):
    """One distance. name: as findings and policies hold it, which never changes. measures: in words, with its unit.

    source: whose idea it is. blind: what it cannot see. of: computes it; None where it is not defined, NaN where there
    is nothing to compare.
    """

    name: str
    measures: str
    source: str
    blind: str
    of: Callable[[ComparedRows], float | None]


ANY_BLIND = "who wrote the text"
"""What no distance can see: a foreign text that the right model scored has distance 0."""
TZ = "tz"
"""The distance that S1 judges, unless the pair of engines is exact."""
MAX_ABS = "max_abs"
"""The distance that S1 judges where the pair of engines is exact."""

DISTANCES: dict[str, Distance] = {
    one.name: one
    for one in (
        Distance(
            name="gonka_go",
            measures="Gonka's distance as its validator computes it, quirks kept; no unit, at least 0",
            source="gonka-ai/gonka",
            blind=f"{ANY_BLIND}; short answers are diluted, an executor picks the divisor's width",
            of=lambda rows: None if rows.lists is None else rows.lists.go,
        ),
        Distance(
            name="gonka_python",
            measures="Gonka's distance as its benchmark computes it, quirks kept; no unit, at least 0",
            source="gonka-ai/gonka",
            blind=f"{ANY_BLIND}; short answers are diluted, an executor picks the divisor's width",
            of=lambda rows: None if rows.lists is None else rows.lists.python[0],
        ),
        Distance(
            name=TZ,
            measures="mean of ln(1 + z²/4), z = (e - v) / honest scale at this depth; no unit, honest near 0.4",
            source="ours",
            blind=f"{ANY_BLIND}; scales of other prompts or another depth mislead it",
            of=lambda rows: distance.tz(rows.pairs, rows.sigma),
        ),
        Distance(
            name="mae",
            measures="mean absolute difference, nats",
            source="textbook",
            blind=f"{ANY_BLIND}; the noise of deep logprobs dominates it",
            of=lambda rows: distance.mae_k(rows.pairs),
        ),
        Distance(
            name=MAX_ABS,
            measures="largest absolute difference, nats",
            source="textbook",
            blind=ANY_BLIND,
            of=lambda rows: distance.max_abs(rows.pairs),
        ),
        Distance(
            name="kl",
            measures="mean KL(e || v) over positions, all unlisted tokens as one, nats; a lower bound of the true one",
            source="textbook",
            blind=f"{ANY_BLIND}; differences among unlisted tokens",
            of=lambda rows: distance.kl_tail(rows.pairs),
        ),
        Distance(
            name="slope",
            measures="least-squares slope of e - v on v: 1/T - 1 where the artifact hides a temperature T; no unit",
            source="textbook",
            blind=f"{ANY_BLIND}; differences of no trend",
            of=lambda rows: rows.line.slope,
        ),
        Distance(
            name="bias",
            measures="mean of e - v on sampled tokens less that on the others, nats: above 0 where those were lifted",
            source="textbook",
            blind=f"{ANY_BLIND}; differences that all tokens share",
            of=lambda rows: rows.line.bias,
        ),
    )
}
"""Every distance by its name, in the order of a finding's numbers."""


def measure(own: Columns, verifier: Columns, sigma: Sigma) -> tuple[Pairs, dict[str, float]]:
    """The pairs of both sides, and every distance that is defined on them."""
    rows = ComparedRows.of(own, verifier, sigma)
    values = ((name, one.of(rows)) for name, one in DISTANCES.items())
    return rows.pairs, {name: value for name, value in values if value is not None}
