"""Tallies: the samples of one task, in dataset order, into rates; memory does not grow with the rows.

A row with several draws counts once, with the mean over its scored draws, so rows are the unit of every
denominator and standard error. Rows that have fewer scored draws than asked are counted as short. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import msgspec

from logproof.eval.report.rates import Mean, Rate, avg_at_n, maj_at_k, pass_at_k, pass_hat_k
from logproof.eval.score.answers import value
from logproof.store.records import SampleRecord

MAX_REASONS = 10
"""Most different reasons of failure that are told apart."""
MAX_REASON_CHARS = 200


class TaskTally(msgspec.Struct, frozen=True):
    """One task in numbers.

    rows: with at least one sample. scored, failed: samples. short: rows with fewer scored draws than `draws`.
    metrics: name -> rate over rows. flags: name -> samples. crossings: options whose tokens cross the join.
    failures: reason -> samples. families: pass@k and its kin, for repeated samples.
    """

    task: str
    rows: int
    scored: int
    failed: int
    draws: int
    short: int
    metrics: dict[str, Rate]
    flags: dict[str, int]
    crossings: int
    failures: dict[str, int]
    families: dict[str, Rate] = {}


def tally(task: str, samples: Iterable[SampleRecord], draws: int = 1) -> TaskTally:
    """The tally of one task. samples: all of it, sorted by index, then repeat. draws: samples asked a row."""
    state = _State(draws)
    for row in _rows(samples):
        state.add(row)
    return TaskTally(
        task=task,
        rows=state.rows,
        scored=state.scored,
        failed=state.failed,
        draws=draws,
        short=state.short,
        metrics=_rates(state.means),
        flags=dict(sorted(state.flags.items())),
        crossings=state.crossings,
        failures=dict(state.failures.most_common()),
        families=_rates(state.families),
    )


def _rows(samples: Iterable[SampleRecord]) -> Iterator[list[SampleRecord]]:
    for _, row in groupby(samples, key=lambda s: s.index):
        yield list(row)


def _rates(means: dict[str, Mean]) -> dict[str, Rate]:
    rates = {name: mean.rate() for name, mean in means.items()}
    return {name: rate for name, rate in rates.items() if rate is not None}


class _State:
    def __init__(self, draws: int) -> None:
        self.draws = draws
        self.rows = self.scored = self.failed = self.short = self.crossings = 0
        self.means: dict[str, Mean] = {}
        self.families: dict[str, Mean] = {}
        self.flags: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()

    def add(self, row: Sequence[SampleRecord]) -> None:
        scored = [s for s in row if s.status == "ok"]
        self.rows += 1
        self.scored += len(scored)
        self.failed += len(row) - len(scored)
        self.short += len(scored) < self.draws
        for sample in row:
            self._count(sample, _output(sample))
        for metric in scored[0].scores if scored else ():
            self._add_metric(metric, scored)

    def _count(self, sample: SampleRecord, output: dict[str, object]) -> None:
        if sample.status == "failed":
            reason = (sample.reason or "no reason given")[:MAX_REASON_CHARS]
            known = reason in self.failures or len(self.failures) < MAX_REASONS
            self.failures[reason if known else "other reasons"] += 1
        for flag in _flags(output):
            self.flags[flag] += 1
        self.crossings += _crossings(output)

    def _add_metric(self, metric: str, scored: Sequence[SampleRecord]) -> None:
        values = [v for s in scored if isinstance(v := s.scores.get(metric), (int, float))]
        if not values:
            return
        if metric not in self.means:
            self.means[metric] = Mean()
        self.means[metric].add(sum(values) / len(values))
        if self.draws > 1 and set(values) <= {0, 1}:
            for name, value in row_families(values, _answers(scored, metric), self.draws).items():
                self.families.setdefault(f"{metric} {name}", Mean()).add(value)


def row_families(hits: Sequence[float], answers: Sequence[str | None] | None, draws: int) -> dict[str, float]:
    """The figures of one row's draws; those that it is too short for are absent.

    hits: 1 or 0 a draw. answers: what each says, None where the task extracts none. k runs over powers of two
    below `draws`, and `draws` itself.
    """
    right, n = int(sum(hits)), len(hits)
    figures: dict[str, float | None] = {f"avg@{draws}": avg_at_n(right, n) if n == draws else None}
    for k in _widths(draws):
        figures[f"pass@{k}"] = pass_at_k(right, n, k)
        figures[f"pass^{k}"] = pass_hat_k(right, n, k)
        if answers is not None:
            figures[f"maj@{k}"] = maj_at_k(answers, [h == 1 for h in hits], k)
    return {name: value for name, value in figures.items() if value is not None}


def _widths(draws: int) -> list[int]:
    return [k for k in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512) if k < draws] + [draws]


def _answers(scored: Sequence[SampleRecord], metric: str) -> list[str | None] | None:
    """What each draw says, as the extractor of `exact_NAME` read it; equal numbers are one answer."""
    name = metric.removeprefix("exact_")
    extracted = [_output(s).get("extracted") for s in scored]
    if name == metric or not all(isinstance(f, dict) and name in f for f in extracted):
        return None
    return [_normal(f[name]) for f in extracted if isinstance(f, dict)]


def _normal(answer: object) -> str | None:
    if not isinstance(answer, str):
        return None
    number = value(answer)
    return answer if number is None else format(number.normalize(), "f")


def _flags(output: dict[str, object]) -> list[str]:
    flags = output.get("flags")
    return [str(f) for f in flags] if isinstance(flags, list) else []


def _crossings(output: dict[str, object]) -> int:
    """How many of a sample's options cross the join."""
    span = output.get("span")
    crossings = span.get("crossings") if isinstance(span, dict) else None
    return crossings if isinstance(crossings, int) else 0


def _output(sample: SampleRecord) -> dict[str, object]:
    return sample.output if isinstance(sample.output, dict) else {}
