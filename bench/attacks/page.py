"""From counts to the tables of docs/attacks.md. Pure, but for `update`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from measure import Count

from logproof.verify.stats.conformal import clopper_pearson

BEGIN, END = "<!-- results: written by bench/attacks/run.py -->", "<!-- end of results -->"
DETECTORS = (
    ("logproof", "logproof"),
    ("gonka, own bound 0.0351", "Gonka, bound 0.0351"),
    ("gonka, own bound 0.01", "Gonka, bound 0.01"),
    ("gonka", "Gonka, 1 % bound"),
    ("gonka, k 20", "Gonka, k 20, 1 % bound"),
    ("token-difr", "token-difr, our noise"),
    ("token-difr as shipped", "token-difr as shipped"),
)


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """What run.py writes. honest: sequences of the false-positive table; facts: conditions, in words."""

    honest: int
    tokens: int
    counts: tuple[Count, ...]
    selftest_tokens: int = 0
    selftest_violations: int = 0
    facts: dict[str, str] = msgspec.field(default_factory=dict)


def tables(results: Results) -> str:
    """Both tables as Markdown."""
    names = list(dict.fromkeys(c.row for c in results.counts))
    honest = [n for n in names if n.startswith("honest")]
    fraud = [n for n in names if n not in honest]
    facts = "\n".join(f"* {k}: {v}" for k, v in results.facts.items())
    return "\n\n".join(
        (
            facts,
            f"### Honest sequences rejected (target {0.01:.0%})",
            _table(results.counts, honest),
            "### Dishonest sequences detected",
            _table(results.counts, fraud),
        )
    )


def _table(counts: Sequence[Count], names: Sequence[str]) -> str:
    found = {(c.row, c.detector, c.length): c for c in counts}
    lengths = sorted({c.length for c in counts})
    head = ["what was done", "tokens", "n", *(words for _, words in DETECTORS), "our tests that failed"]
    lines = [_line(head), _line(["---"] * len(head))]
    for name in names:
        for length in lengths:
            own = found.get((name, "logproof", length))
            if own is None:
                continue
            cells = [_cell(found.get((name, d, length))) for d, _ in DETECTORS]
            tests = ", ".join(f"{t} {k}" for t, k in own.tests.items())
            lines.append(_line([name, str(length), str(own.trials), *cells, tests]))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(count: Count | None) -> str:
    """Rate and 95 % Clopper-Pearson interval, in per cent."""
    if count is None:
        return ""
    low, high = clopper_pearson(count.hits, count.trials)
    return f"{_percent(count.hits / count.trials)} ({_percent(low)}-{_percent(high)})"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}" if share < 0.1 else f"{100 * share:.0f}"


def update(path: Path, results: Results) -> None:
    """Put the tables between the marks of the page. Raises ValueError where the marks are not there once each."""
    text = path.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"{path} does not hold the marks of the results once each")
    before, rest = text.split(BEGIN)
    path.write_text(f"{before}{BEGIN}\n\n{tables(results)}\n\n{END}{rest.split(END)[1]}")
